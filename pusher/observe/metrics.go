package observe

import (
	"cmp"
	"log/slog"
	"slices"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/hapsnap/hapsnap/pusher/report"
	"github.com/hapsnap/hapsnap/pusher/rollout"
	"github.com/hapsnap/hapsnap/snapshots"
)

// countedJobs are the kinds of jobs on instances that have a counter, besides pushes.
var countedJobs = []string{"update", "persist", "collect", "inspect", "mend", "claim"}

// metrics are the metrics of a pusher.
type metrics struct {
	instances, inSync, reachable, refused, refusedEndpoints, behind, rewound, troubles, conflicts, lastSync, foreign, ledByOther prometheus.Gauge
	phase                                                                                                                        *prometheus.GaugeVec
	pushes, updates                                                                                                              *prometheus.CounterVec
	reloads, lost                                                                                                                prometheus.Counter
	took, propagation                                                                                                            *prometheus.HistogramVec
	turns                                                                                                                        prometheus.Histogram
	gauges                                                                                                                       gauges
}

func newMetrics(r prometheus.Registerer) *metrics {
	gauge := func(name, help string) prometheus.Gauge {
		g := prometheus.NewGauge(prometheus.GaugeOpts{Namespace: "hapsnap", Subsystem: "pusher", Name: name, Help: help})
		r.MustRegister(g)
		return g
	}
	counters := func(name, help string, labels ...string) *prometheus.CounterVec {
		c := prometheus.NewCounterVec(prometheus.CounterOpts{Namespace: "hapsnap", Subsystem: "pusher", Name: name, Help: help}, labels)
		r.MustRegister(c)
		return c
	}
	m := &metrics{
		instances:        gauge("instances", "Instances of the fleet."),
		inSync:           gauge("instances_in_sync", "Instances that run what is wanted, with today's servers and certificates."),
		reachable:        gauge("instances_reachable", "Instances whose worker says what it runs."),
		refused:          gauge("instances_refused", "Instances whose version of HAProxy or of the Dataplane API is not supported: nothing is pushed to them."),
		refusedEndpoints: gauge("endpoints_refused", "Endpoints of EndpointSlices that are refused for their addresses: nothing is sent there."),

		behind:     gauge("revisions_behind", "Snapshots in the store that are newer than what the fleet runs."),
		rewound:    gauge("store_rewound", "1 while the store, or its channel, is behind what the pusher saw of it, or gone: what runs is held."),
		troubles:   gauge("troubles", "Things that keep the pusher from its work, such as a store that is gone."),
		conflicts:  gauge("repair_conflicts", "Instances that are no longer repaired, because somebody else keeps undoing the repairs: of what they run, of files, or of servers."),
		foreign:    gauge("instances_foreign", "Instances whose worker was started from another configuration than the pusher wrote, whatever it names."),
		ledByOther: gauge("instances_led_by_other", "Instances that another pusher leads: nothing is written to them."),
		lastSync:   gauge("last_sync_timestamp_seconds", "When all instances were last in sync, as Unix time."),
		pushes:     counters("pushes_total", "Pushes of a snapshot to an instance, by how they ended.", "result"),
		updates:    counters("runtime_changes_total", "Changes of instances without a reload, by kind and how they ended.", "kind", "result"),
		reloads: prometheus.NewCounter(prometheus.CounterOpts{
			Namespace: "hapsnap", Subsystem: "pusher", Name: "reloads_total", Help: "Reloads of HAProxy that pushes caused.",
		}),
		lost: prometheus.NewCounter(prometheus.CounterOpts{
			Namespace: "hapsnap", Subsystem: "pusher", Name: "map_entries_lost_total",
			Help: "Changes of map entries that an instance acknowledged and did not make.",
		}),
		took: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Namespace: "hapsnap", Subsystem: "pusher", Name: "push_duration_seconds", Help: "Time that a push took, by how it ended.",
			Buckets: prometheus.ExponentialBuckets(0.01, 2, 14),
		}, []string{"result"}),
		propagation: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Namespace: "hapsnap", Subsystem: "pusher", Name: "propagation_seconds",
			Help:    "Time from a change in the cluster until all instances in reach had it, by what changed.",
			Buckets: prometheus.ExponentialBuckets(0.001, 2, 18),
		}, []string{"kind"}),
		turns: prometheus.NewHistogram(prometheus.HistogramOpts{
			Namespace: "hapsnap", Subsystem: "pusher", Name: "turn_duration_seconds",
			Help:    "Time that a turn took, in which the pusher decides with what it heard. Nothing else is decided meanwhile.",
			Buckets: prometheus.ExponentialBuckets(0.001, 2, 14),
		}),
		phase: prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Namespace: "hapsnap", Subsystem: "pusher", Name: "rollout_phase", Help: "1 for the phase that the rollout is in, else 0.",
		}, []string{"phase"}),
	}
	r.MustRegister(m.reloads, m.lost, m.took, m.propagation, m.turns, m.phase, &m.gauges)
	for _, kind := range []string{propagationEndpoints, propagationSecrets} {
		m.propagation.WithLabelValues(kind)
	}
	for _, o := range []rollout.Outcome{rollout.Applied, rollout.Refused, rollout.Trouble} {
		m.pushes.WithLabelValues(string(o))
		m.took.WithLabelValues(string(o))
	}
	for _, kind := range countedJobs {
		m.updates.WithLabelValues(kind, "done")
		m.updates.WithLabelValues(kind, "failed")
	}
	return m
}

func (m *metrics) observe(v View, s report.Status) {
	m.refusedEndpoints.Set(float64(v.Refused.Count()))
	m.gauges.set(v, s)
	reachable, refused, conflicts, foreign, ledByOther := 0, 0, 0, 0, 0
	for _, i := range s.Instances {
		if i.Refused {
			refused++
		}
		if i.Conflict != nil {
			conflicts++
		}
		if i.Foreign != "" {
			foreign++
		}
		if i.LedBy != "" {
			ledByOther++
		}
		if i.Reachable {
			reachable++
		}
	}
	m.instances.Set(float64(len(s.Instances)))
	m.inSync.Set(float64(s.InSync()))
	m.reachable.Set(float64(reachable))
	m.refused.Set(float64(refused))
	m.behind.Set(float64(s.Channel.Behind))
	m.conflicts.Set(float64(conflicts))
	m.foreign.Set(float64(foreign))
	m.ledByOther.Set(float64(ledByOther))
	m.rewound.Set(0)
	if s.Channel.Rewound {
		m.rewound.Set(1)
	}
	m.troubles.Set(float64(len(s.Troubles)))
	if len(s.Instances) > 0 && s.InSync() == len(s.Instances) {
		m.lastSync.Set(float64(s.Updated.Unix()))
	}
	for _, phase := range []rollout.Phase{"idle", rollout.Pushing, rollout.Soaking, rollout.Undoing} {
		value := 0.0
		if s.Phase() == phase || (s.Rollout == nil && phase == "idle") {
			value = 1
		}
		m.phase.WithLabelValues(string(phase)).Set(value)
	}
}

// The gauges. Their label for an instance is not called instance, since Prometheus uses that label for the process that
// it scrapes.
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
	expiryDescription = prometheus.NewDesc("hapsnap_pusher_certificate_expiry_timestamp_seconds",
		"When a certificate that is served expires, as Unix time, by its Secret; of the 100 that expire first.", []string{"secret_namespace", "secret"}, nil)
	pinAgeDescription = prometheus.NewDesc("hapsnap_pusher_pin_age_seconds",
		"For how long a snapshot has been pinned; 0 while none is. Where the pin does not say, since this process saw it.", nil, nil)
	pauseAgeDescription = prometheus.NewDesc("hapsnap_pusher_pause_age_seconds",
		"For how long the fleet has been paused; 0 while it is not. Where the pause does not say, since this process saw it.", nil, nil)
	degradedDescription = prometheus.NewDesc("hapsnap_pusher_degraded",
		"1 while a person must act, by the reason of the condition Degraded, such as SnapshotFailed; none while nobody must.", []string{"reason"}, nil)
)

// gauges are made of two kinds of values: values that change as time passes, and so are not in the status, and values
// of single instances, which have to disappear when the instance leaves.
type gauges struct {
	mu         sync.Mutex
	inSync     map[string]bool
	left       rollout.Left
	live       liveGauges
	pin, pause held
	// degraded is the reason why a person must act, "" if nobody must.
	degraded string
	// expiries are the certificates that expire soonest.
	expiries []Expiry
}

// Expiry is when the certificate of a Secret expires.
type Expiry struct {
	Secret snapshots.SecretName
	At     time.Time
}

// MostExpiries is how many certificates have a metric with their expiry. Tenants make certificates, and must not be
// able to make any number of metrics.
const MostExpiries = 100

// SoonestExpiries returns the certificates that expire soonest, [MostExpiries] at most. It leaves out those whose
// expiry is not known.
func SoonestExpiries(ends map[snapshots.SecretName]time.Time) []Expiry {
	out := make([]Expiry, 0, len(ends))
	for name, at := range ends {
		if !at.IsZero() {
			out = append(out, Expiry{name, at})
		}
	}
	slices.SortFunc(out, func(a, b Expiry) int {
		return cmp.Or(a.At.Compare(b.At), cmp.Compare(a.Secret.Namespace, b.Secret.Namespace), cmp.Compare(a.Secret.Name, b.Secret.Name))
	})
	return out[:min(len(out), MostExpiries)]
}

// liveGauges are the gauges about faults in live data.
type liveGauges struct {
	lacking, kept, withoutEndpoints, failingChecks int
}

// set replaces all values.
func (g *gauges) set(v View, s report.Status) {
	inSync := make(map[string]bool, len(s.Instances))
	for _, i := range s.Instances {
		inSync[i.Name] = i.InSync
	}
	without, failing := 0, 0
	if b := s.Backends; b != nil {
		without, failing = b.Empty-b.Failing, b.Failing
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	g.inSync, g.left, g.expiries = inSync, v.Budget, v.Expiries
	var pinned, paused *time.Time
	if p := v.Channel.Spec.Pin; p != nil {
		pinned = &p.At
	}
	if p := v.Channel.Spec.Pause; p != nil {
		paused = &p.At
	}
	g.pin, g.pause = g.pin.next(pinned, v.Now), g.pause.next(paused, v.Now)
	g.degraded = ""
	if c := meta.FindStatusCondition(s.Conditions, report.TypeDegraded); c != nil && c.Status == metav1.ConditionTrue {
		g.degraded = c.Reason
	}
	g.live = liveGauges{lacking: v.Lacking, kept: v.KeptPorts, withoutEndpoints: without, failingChecks: failing}
}

// Describe implements [prometheus.Collector].
func (g *gauges) Describe(out chan<- *prometheus.Desc) {
	out <- instanceInSyncDescription
	out <- instanceBudgetDescription
	out <- budgetDescription
	out <- pinAgeDescription
	out <- pauseAgeDescription
	out <- degradedDescription
	out <- lackingDescription
	out <- keptDescription
	out <- emptyDescription
	out <- expiryDescription
}

// Collect implements [prometheus.Collector]. It sends the values that were set last.
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
	for _, e := range g.expiries {
		tell(expiryDescription, float64(e.At.Unix()), e.Secret.Namespace, e.Secret.Name)
	}
	tell(pinAgeDescription, g.pin.age.Seconds())
	tell(pauseAgeDescription, g.pause.age.Seconds())
	if g.degraded != "" {
		tell(degradedDescription, 1, g.degraded)
	}
	tell(lackingDescription, float64(g.live.lacking))
	tell(keptDescription, float64(g.live.kept))
	tell(emptyDescription, float64(g.live.withoutEndpoints), "endpoints")
	tell(emptyDescription, float64(g.live.failingChecks), "checks")
}

// held is for how long a channel has had its pin, or its pause.
type held struct {
	seen time.Time // when this process saw it first, zero while there is none
	age  time.Duration
}

// next returns the age now. The time since is nil while there is none, and zero if the channel does not say: what people
// write with kubectl has no time.
func (h held) next(since *time.Time, now time.Time) held {
	if since == nil {
		return held{}
	}
	if h.seen.IsZero() {
		h.seen = now
	}
	at := *since
	if at.IsZero() {
		at = h.seen
	}
	return held{seen: h.seen, age: max(0, now.Sub(at))}
}

// The kinds of changes whose propagation is measured.
const (
	propagationEndpoints = "endpoints"
	propagationSecrets   = "secrets"
)

// propagation measures how long changes in a cluster take to reach all instances.
type propagation struct {
	seen    []time.Time            // changes of endpoints that have not changed servers yet
	pending map[string][]time.Time // changes on their way to the instances, by kind
}

// maxPropagating is the largest number of changes that are pending while an instance cannot take them.
const maxPropagating = 1000

// begin notes changes that instances should get.
func (s *propagation) begin(kind string, since []time.Time) {
	if s.pending == nil {
		s.pending = map[string][]time.Time{}
	}
	room := maxPropagating - len(s.pending[kind])
	s.pending[kind] = append(s.pending[kind], since[:min(len(since), max(room, 0))]...)
}

// observe records how long changes took that all reachable instances now have.
func (s *propagation) observe(instances []Instance, m *metrics, now time.Time) {
	s.seen = nil
	if len(s.pending) == 0 {
		return
	}
	for _, i := range instances {
		if i.Pushing || i.Updating || !i.Arrived {
			return
		}
	}
	for kind, times := range s.pending {
		for _, at := range times {
			m.propagation.WithLabelValues(kind).Observe(now.Sub(at).Seconds())
		}
	}
	s.pending = nil
}

// tallyInterval is how often the sum of endpoint changes is logged. There may be many changes a second.
const tallyInterval = 10 * time.Second

// tally sums up the changes of endpoints since they were last logged.
type tally struct {
	since          time.Time // when the first of them happened, zero if there are none
	services       map[snapshots.ServicePort]bool
	added, removed int
	instances      map[string]bool // the instances that got changes at run time
}

// change notes a change of the endpoints of a Service.
func (t *tally) change(port snapshots.ServicePort, old, next []snapshots.Endpoint, now time.Time) {
	added, removed := without(next, old), without(old, next) // a draining endpoint counts as gone
	if added+removed == 0 {
		return
	}
	if t.since.IsZero() {
		*t = tally{since: now, services: map[snapshots.ServicePort]bool{}, instances: map[string]bool{}}
	}
	t.services[port] = true
	t.added, t.removed = t.added+added, t.removed+removed
}

// without counts the endpoints that take traffic in one list and do not in the other.
func without(list, other []snapshots.Endpoint) (n int) {
	for _, e := range list {
		if !e.Draining && !slices.Contains(other, e) {
			n++
		}
	}
	return n
}

// changed notes that an instance got the changes.
func (t *tally) changed(instance string) {
	if !t.since.IsZero() {
		t.instances[instance] = true
	}
}

// log logs the sum when the interval is over.
func (t *tally) log(log *slog.Logger, now time.Time) {
	if t.since.IsZero() || now.Sub(t.since) < tallyInterval {
		return
	}
	log.Info("endpoints changed", "services", len(t.services), "added", t.added, "removed", t.removed, "instances", len(t.instances), "within", tallyInterval)
	*t = tally{}
}
