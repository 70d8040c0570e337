package pusher

import (
	"flag"
	"os"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/hapsnap/hapsnap/internal/election"
	"github.com/hapsnap/hapsnap/internal/metricsdoc"
	"github.com/hapsnap/hapsnap/pusher/announce"
	"github.com/hapsnap/hapsnap/pusher/cluster"
	"github.com/hapsnap/hapsnap/pusher/rollout"
)

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
