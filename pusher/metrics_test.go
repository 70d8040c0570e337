package pusher

import (
	"flag"
	"testing"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/hapsnap/hapsnap/internal/credentials"
	"github.com/hapsnap/hapsnap/internal/election"
	"github.com/hapsnap/hapsnap/internal/testing/dataplanetest"
	"github.com/hapsnap/hapsnap/internal/testing/metricsdoc"
	"github.com/hapsnap/hapsnap/pusher/announce"
	"github.com/hapsnap/hapsnap/pusher/cluster"
	"github.com/hapsnap/hapsnap/pusher/observe"
	"github.com/hapsnap/hapsnap/pusher/rollout"
)

var update = flag.Bool("update", false, "rewrite the document")

// The page lists the metrics as they are registered, and speaks of no others.
func TestMetricsAreDocumented(t *testing.T) {
	t.Parallel()
	const file, section, prefix = "../docs/reference/metrics.md", "metrics of the pusher", "hapsnap_pusher_"
	registry := prometheus.NewPedanticRegistry()
	o := observe.New(Options{Metrics: registry}.withDefaults().observed())
	o.Show(observe.View{Expiries: []observe.Expiry{{}}, Budget: rollout.Left{Limited: true, Instances: map[string]int{"edge-1": 1}}}, observe.Status{Instances: []observe.InstanceStatus{{Name: "edge-1"}}})
	registry.MustRegister(cluster.New(cluster.Connection{}, false))
	if _, err := election.New(election.Options{Program: "pusher", Times: election.Defaults(), Metrics: registry}); err != nil {
		t.Fatal(err)
	}
	announce.New(announce.Options{Metrics: registry})
	credentials.NewMetrics(registry, "pusher").Example()
	metricsdoc.Check(t, registry, file, section, prefix, *update)
}

// How long changes take is measured for manifests too.
func TestPropagationFromADirectory(t *testing.T) {
	t.Parallel()
	r := newRig(t, dataplanetest.V34, "a")
	registry := prometheus.NewRegistry()
	r.options.Metrics = registry
	r.endpoints(echo(t, "one"))
	r.allRunAfter(r.publish(config("1", "")))
	if n := propagations(t, registry, "endpoints"); n != 0 {
		t.Errorf("%d changes before there was one", n)
	}
	r.endpoints(echo(t, "two"))
	eventually(t, "the new endpoint answers", func() bool { return r.answersOnly("a", "two") })
	eventually(t, "its way is timed", func() bool { return propagations(t, registry, "endpoints") == 1 })
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
