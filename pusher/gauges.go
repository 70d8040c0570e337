package pusher

import (
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/hapsnap/hapsnap/pusher/rollout"
	"github.com/hapsnap/hapsnap/snapshots/channel"
)

// What the gauges are called, and say. An instance is told by its name: a label of the
// name instance is Prometheus' own, for whom it asks.
var (
	instanceInSyncDescription = prometheus.NewDesc("hapsnap_pusher_instance_in_sync",
		"1 while the instance runs what is wanted, with today's servers and certificates, else 0.", []string{"name"}, nil)
	instanceBudgetDescription = prometheus.NewDesc("hapsnap_pusher_instance_reload_budget",
		"Reloads that the instance may have now, by the limits for each; none where there is no limit.", []string{"name"}, nil)
	budgetDescription = prometheus.NewDesc("hapsnap_pusher_reload_budget",
		"Reloads that the fleet may begin now, which are tokens in its bucket; none where there is no limit.", nil, nil)
	lackingDescription = prometheus.NewDesc("hapsnap_pusher_needs_lacking",
		"Lists of EndpointSlices, Secrets and sources that snapshots in use need and the pusher cannot have, such as what it may not read.", nil, nil)
	keptDescription = prometheus.NewDesc("hapsnap_pusher_endpoints_kept",
		"Service ports whose endpoints are kept though their source has none of them any more, until they are seen again or a person confirms the loss.", nil, nil)
	emptyDescription = prometheus.NewDesc("hapsnap_pusher_backends_without_servers",
		"Backends of what should run that have no server up, by why: endpoints (there are none), checks (no server passes its checks on an instance).", []string{"why"}, nil)
	pinAgeDescription = prometheus.NewDesc("hapsnap_pusher_pin_age_seconds",
		"For how long a snapshot has been pinned; 0 while none is, or where the pin does not say.", nil, nil)
)

// gauges are values that have no place in the status, for they change with the time
// alone, and those of each instance, which leave with it.
type gauges struct {
	mu     sync.Mutex
	inSync map[string]bool
	left   rollout.Left
	pinAge time.Duration
	live   liveGauges
}

// liveGauges say what is wrong with the live data.
type liveGauges struct {
	lacking, kept, withoutEndpoints, failingChecks int
}

// set replaces them all.
func (g *gauges) set(instances []InstanceStatus, left rollout.Left, pinAge time.Duration, live liveGauges) {
	inSync := make(map[string]bool, len(instances))
	for _, i := range instances {
		inSync[i.Name] = i.InSync
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	g.inSync, g.left, g.pinAge, g.live = inSync, left, pinAge, live
}

// Describe and Collect are those of [prometheus.Collector].
func (g *gauges) Describe(out chan<- *prometheus.Desc) {
	out <- instanceInSyncDescription
	out <- instanceBudgetDescription
	out <- budgetDescription
	out <- pinAgeDescription
	out <- lackingDescription
	out <- keptDescription
	out <- emptyDescription
}

// Collect tells what was set last.
func (g *gauges) Collect(out chan<- prometheus.Metric) {
	g.mu.Lock()
	defer g.mu.Unlock()
	tell := func(what *prometheus.Desc, value float64, labels ...string) {
		out <- prometheus.MustNewConstMetric(what, prometheus.GaugeValue, value, labels...)
	}
	for name, is := range g.inSync {
		value := 0.0
		if is {
			value = 1
		}
		tell(instanceInSyncDescription, value, name)
	}
	for name, n := range g.left.Instances {
		tell(instanceBudgetDescription, float64(n), name)
	}
	if g.left.Limited {
		tell(budgetDescription, float64(g.left.Fleet))
	}
	tell(pinAgeDescription, g.pinAge.Seconds())
	tell(lackingDescription, float64(g.live.lacking))
	tell(keptDescription, float64(g.live.kept))
	tell(emptyDescription, float64(g.live.withoutEndpoints), "endpoints")
	tell(emptyDescription, float64(g.live.failingChecks), "checks")
}

// pinAge returns for how long a channel has had its pin.
func pinAge(c channel.Channel, now time.Time) time.Duration {
	if p := c.Spec.Pin; p != nil && !p.At.IsZero() {
		return max(0, now.Sub(p.At))
	}
	return 0
}
