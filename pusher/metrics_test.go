package pusher

import (
	"flag"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/hapsnap/hapsnap/internal/election"
	"github.com/hapsnap/hapsnap/internal/testing/metricsdoc"
	"github.com/hapsnap/hapsnap/pusher/announce"
	"github.com/hapsnap/hapsnap/pusher/cluster"
	"github.com/hapsnap/hapsnap/pusher/rollout"
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
	table, err := metricsdoc.Table(registry, prefix)
	if err != nil {
		t.Fatal(err)
	}
	if *update {
		if err := metricsdoc.Replace(file, section, table); err != nil {
			t.Fatal(err)
		}
	}
	page, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	documented, err := metricsdoc.Section(string(page), section)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(table, documented); diff != "" {
		t.Errorf("%s differs from the registry; rewrite it with -update:\n%s", file, diff)
	}
	if unknown, err := metricsdoc.Unknown(string(page), prefix, registry); err != nil || len(unknown) > 0 {
		t.Errorf("%s speaks of %q: %v", file, unknown, err)
	}
}
