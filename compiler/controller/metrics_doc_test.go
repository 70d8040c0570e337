package controller_test

import (
	"errors"
	"flag"
	"log/slog"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/client-go/dynamic"

	"github.com/hapsnap/hapsnap/compiler"
	"github.com/hapsnap/hapsnap/compiler/admission"
	"github.com/hapsnap/hapsnap/compiler/announce"
	"github.com/hapsnap/hapsnap/compiler/cluster"
	"github.com/hapsnap/hapsnap/compiler/config"
	"github.com/hapsnap/hapsnap/compiler/controller"
	"github.com/hapsnap/hapsnap/compiler/inputs"
	"github.com/hapsnap/hapsnap/internal/credentials"
	"github.com/hapsnap/hapsnap/internal/election"
	"github.com/hapsnap/hapsnap/internal/testing/metricsdoc"
	"github.com/hapsnap/hapsnap/snapshots"
)

var update = flag.Bool("update", false, "rewrite the page")

// The page lists exactly the registered metrics.
func TestMetricsDocumentIsFresh(t *testing.T) {
	t.Parallel()
	const file, section, prefix = "../../docs/reference/metrics.md", "metrics of the compiler", "hapsnap_compiler_"
	registry := prometheus.NewPedanticRegistry()
	var result compiler.Result
	result.Draft.Provenance.Inputs = []snapshots.Input{{Kind: "Ingress"}}
	controller.RegisterMetrics(registry, time.Now, result)
	watching := cluster.New(cluster.Connection{})
	if _, err := watching.Read(t.Context(), config.Default()); !errors.Is(err, inputs.ErrIncomplete) {
		t.Fatal(err)
	}
	registry.MustRegister(watching)
	registerOthers(t, registry)
	announce.New(announce.Options{Metrics: registry, Dynamic: &dynamic.DynamicClient{}})
	credentials.NewMetrics(registry, "compiler").Example()
	metricsdoc.Check(t, registry, file, section, prefix, *update)
}

// registerOthers registers the metrics of components beside the loop.
func registerOthers(t *testing.T, r prometheus.Registerer) {
	t.Helper()
	_, err := election.New(election.Options{
		Program: "compiler", Metrics: r, Times: election.Times{LeaseDuration: 3 * time.Second, RenewDeadline: 2 * time.Second, RetryPeriod: time.Second},
	})
	if err != nil {
		t.Fatal(err)
	}
	_, err = admission.Start(t.Context(), admission.Options{
		Address: "127.0.0.1:0", CertDir: t.TempDir(), Metrics: r, Log: slog.New(slog.DiscardHandler),
	})
	if err != nil {
		t.Fatal(err)
	}
}
