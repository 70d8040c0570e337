package pusher

import (
	"flag"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/hapsnap/hapsnap/internal/credentials"
	"github.com/hapsnap/hapsnap/internal/election"
	"github.com/hapsnap/hapsnap/internal/testing/metricsdoc"
	"github.com/hapsnap/hapsnap/pusher/announce"
	"github.com/hapsnap/hapsnap/pusher/cluster"
	"github.com/hapsnap/hapsnap/pusher/observe"
	"github.com/hapsnap/hapsnap/pusher/report"
	"github.com/hapsnap/hapsnap/pusher/rollout"
)

var update = flag.Bool("update", false, "rewrite the document")

// The page lists exactly the registered metrics.
func TestMetricsDocumentIsFresh(t *testing.T) {
	t.Parallel()
	const file, section, prefix = "../docs/reference/metrics.md", "metrics of the pusher", "hapsnap_pusher_"
	registry := prometheus.NewPedanticRegistry()
	o := observe.New(Options{Metrics: registry}.withDefaults().observed())
	o.Show(observe.View{Expiries: []observe.Expiry{{}}, Budget: rollout.Left{Limited: true, Instances: map[string]int{"edge-1": 1}}}, report.Status{
		Instances:  []report.Instance{{Name: "edge-1"}},
		Conditions: []metav1.Condition{{Type: report.TypeDegraded, Status: metav1.ConditionTrue, Reason: report.ReasonSnapshotFailed}},
	})
	registry.MustRegister(cluster.New(cluster.Connection{}, false))
	if _, err := election.New(election.Options{Program: "pusher", Times: election.Defaults(), Metrics: registry}); err != nil {
		t.Fatal(err)
	}
	newRecorder(Options{Metrics: registry}, "")
	announce.New(announce.Options{Metrics: registry})
	credentials.NewMetrics(registry, "pusher").Example()
	metricsdoc.Check(t, registry, file, section, prefix, *update)
}
