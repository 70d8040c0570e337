package pusher

import (
	"bytes"
	"flag"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/hapsnap/hapsnap/internal/election"
	"github.com/hapsnap/hapsnap/internal/testing/dataplanetest"
	"github.com/hapsnap/hapsnap/internal/testing/metricsdoc"
	"github.com/hapsnap/hapsnap/pusher/announce"
	"github.com/hapsnap/hapsnap/pusher/cluster"
	"github.com/hapsnap/hapsnap/pusher/rollout"
	"github.com/hapsnap/hapsnap/snapshots"
	"github.com/hapsnap/hapsnap/snapshots/channel"
)

// Instances that leave take their gauges along, and where there is no limit nothing is
// said to be left of it.
func TestGauges(t *testing.T) {
	t.Parallel()
	var g gauges
	g.set([]InstanceStatus{{Name: "gone", InSync: true}}, rollout.Left{Limited: true, Fleet: 1, Instances: map[string]int{"gone": 1}}, time.Hour, liveGauges{kept: 9})
	g.set([]InstanceStatus{{Name: "a", InSync: true}, {Name: "b"}}, rollout.Left{Instances: map[string]int{"a": 2, "b": 0}}, 90*time.Second, liveGauges{1, 2, 3, 4})
	const want = `
# HELP hapsnap_pusher_backends_without_servers Backends of what should run that have no server up, by why: endpoints (there are none), checks (no server passes its checks on an instance).
# TYPE hapsnap_pusher_backends_without_servers gauge
hapsnap_pusher_backends_without_servers{why="checks"} 4
hapsnap_pusher_backends_without_servers{why="endpoints"} 3
# HELP hapsnap_pusher_endpoints_kept Service ports whose endpoints are kept though their source has none of them any more, until they are seen again or a person confirms the loss.
# TYPE hapsnap_pusher_endpoints_kept gauge
hapsnap_pusher_endpoints_kept 2
# HELP hapsnap_pusher_needs_lacking Lists of EndpointSlices, Secrets and sources that snapshots in use need and the pusher cannot have, such as what it may not read.
# TYPE hapsnap_pusher_needs_lacking gauge
hapsnap_pusher_needs_lacking 1
# HELP hapsnap_pusher_instance_in_sync 1 while the instance runs what is wanted, with today's servers and certificates, else 0.
# TYPE hapsnap_pusher_instance_in_sync gauge
hapsnap_pusher_instance_in_sync{name="a"} 1
hapsnap_pusher_instance_in_sync{name="b"} 0
# HELP hapsnap_pusher_instance_reload_budget Reloads that the instance may have now, by the limits for each; none where there is no limit.
# TYPE hapsnap_pusher_instance_reload_budget gauge
hapsnap_pusher_instance_reload_budget{name="a"} 2
hapsnap_pusher_instance_reload_budget{name="b"} 0
# HELP hapsnap_pusher_pin_age_seconds For how long a snapshot has been pinned; 0 while none is, or where the pin does not say.
# TYPE hapsnap_pusher_pin_age_seconds gauge
hapsnap_pusher_pin_age_seconds 90
`
	if err := testutil.CollectAndCompare(&g, strings.NewReader(want)); err != nil {
		t.Error(err)
	}
}

func TestPinAge(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC)
	pinned := func(at time.Time) channel.Channel { return channel.Channel{}.Pinned(channel.Pin{At: at}) }
	for name, test := range map[string]struct {
		channel channel.Channel
		want    time.Duration
	}{
		"no pin":             {channel.Channel{}, 0},
		"since when unknown": {pinned(time.Time{}), 0},
		"an hour":            {pinned(now.Add(-time.Hour)), time.Hour},
		"another clock":      {pinned(now.Add(time.Hour)), 0},
	} {
		if got := pinAge(test.channel, now); got != test.want {
			t.Errorf("%s: %s, want %s", name, got, test.want)
		}
	}
}

var update = flag.Bool("update", false, "rewrite the document")

// The page lists the metrics as they are registered, and speaks of no others.
func TestMetricsAreDocumented(t *testing.T) {
	t.Parallel()
	const file, section, prefix = "../docs/reference/metrics.md", "metrics of the pusher", "hapsnap_pusher_"
	registry := prometheus.NewPedanticRegistry()
	m := newMetrics(registry)
	m.observe(Status{})
	m.gauges.set([]InstanceStatus{{Name: "edge-1"}}, rollout.Left{Limited: true, Instances: map[string]int{"edge-1": 1}}, 0, liveGauges{})
	registry.MustRegister(cluster.New(cluster.Connection{}, false))
	if _, err := election.New(election.Options{Program: "pusher", Times: election.Defaults(), Metrics: registry}); err != nil {
		t.Fatal(err)
	}
	announce.New(announce.Options{Metrics: registry})
	metricsdoc.Check(t, registry, file, section, prefix, *update)
}

// A change has arrived where the worker has it, and not where the instance is busy with
// something else, or has to write its file first.
func TestArrived(t *testing.T) {
	t.Parallel()
	has := instanceNeeds{Reachable: true, Bound: true, SameNode: true, SameServers: true, SameMaps: true, SameCertificates: true, Persisted: true}
	edit := func(change func(*instanceNeeds)) instanceNeeds {
		s := has
		change(&s)
		return s
	}
	for name, test := range map[string]struct {
		s    instanceNeeds
		want bool
	}{
		"it has all":                              {has, true},
		"not on disk yet":                         {edit(func(s *instanceNeeds) { s.Persisted = false }), true},
		"busy, and has all":                       {edit(func(s *instanceNeeds) { s.Busy = true }), true},
		"other servers":                           {edit(func(s *instanceNeeds) { s.SameServers = false }), false},
		"other servers, and busy":                 {edit(func(s *instanceNeeds) { s.SameServers, s.Busy = false, true }), false},
		"other servers, and its file comes first": {edit(func(s *instanceNeeds) { s.SameServers, s.Unserved, s.Updated = false, true, true }), false},
		"other certificates":                      {edit(func(s *instanceNeeds) { s.SameCertificates = false }), false},
		"other entries":                           {edit(func(s *instanceNeeds) { s.SameMaps = false }), false},
		"another shape":                           {edit(func(s *instanceNeeds) { s.SameNode = false }), false},
		"another shape, and busy":                 {edit(func(s *instanceNeeds) { s.SameNode, s.Busy = false, true }), false},
		"out of reach":                            {edit(func(s *instanceNeeds) { s.Reachable, s.SameServers = false, false }), true},
	} {
		if got := arrived(test.s); got != test.want {
			t.Errorf("%s: %v", name, got)
		}
	}
}

// Changes of endpoints are one line for ten seconds, however many there are.
func TestEndpointChangesAreSummed(t *testing.T) {
	t.Parallel()
	var out bytes.Buffer
	log := slog.New(slog.NewTextHandler(&out, nil))
	web, api := snapshots.ServicePort{Namespace: "shop", Service: "web"}, snapshots.ServicePort{Namespace: "shop", Service: "api"}
	at := func(last ...string) (list []snapshots.Endpoint) {
		for _, l := range last {
			name, draining := strings.CutSuffix(l, " drains")
			list = append(list, snapshots.Endpoint{Address: "10.0.0." + name, Port: 80, Draining: draining})
		}
		return list
	}
	begin := time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC)
	var s tally
	s.changed("edge-1") // nothing has changed yet
	s.log(log, begin)
	if s.change(web, at("1"), at("1"), begin); !s.since.IsZero() {
		t.Error("the same counts as a change")
	}
	s.change(web, at("1"), at("1", "2"), begin)
	s.change(web, at("1", "2"), at("1 drains", "2"), begin.Add(time.Second))
	s.change(web, at("1 drains", "2"), at("2"), begin.Add(2*time.Second))
	s.change(api, nil, at("7", "8"), begin.Add(3*time.Second))
	s.changed("edge-1")
	s.changed("edge-1")
	s.changed("edge-2")
	s.log(log, begin.Add(9*time.Second))
	s.log(log, begin.Add(10*time.Second))
	s.log(log, begin.Add(60*time.Second))
	want := "level=INFO msg=\"endpoints changed\" services=2 added=3 removed=1 instances=2 within=10s\n"
	if got := out.String(); !strings.HasSuffix(got, want) || strings.Count(got, "\n") != 1 {
		t.Errorf("logged\n%s, want\n%s", got, want)
	}
}

// How long changes take is measured for manifests too.
func TestPropagationFromADirectory(t *testing.T) {
	t.Parallel()
	r := newRig(t, dataplanetest.V34, "a")
	registry := prometheus.NewRegistry()
	r.options.Metrics = registry
	r.endpoints(echo(t, "one"))
	r.allRunAfter(r.publish(config("1", "")))
	if n := propagations(t, registry, propagationEndpoints); n != 0 {
		t.Errorf("%d changes before there was one", n)
	}
	r.endpoints(echo(t, "two"))
	eventually(t, "the new endpoint answers", func() bool { return r.answersOnly("a", "two") })
	eventually(t, "its way is timed", func() bool { return propagations(t, registry, propagationEndpoints) == 1 })
}

func propagations(t *testing.T, g prometheus.Gatherer, kind string) uint64 {
	t.Helper()
	all, err := g.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, family := range all {
		if family.GetName() != "hapsnap_pusher_propagation_seconds" {
			continue
		}
		for _, m := range family.GetMetric() {
			if m.GetLabel()[0].GetValue() == kind {
				return m.GetHistogram().GetSampleCount()
			}
		}
	}
	return 0
}
