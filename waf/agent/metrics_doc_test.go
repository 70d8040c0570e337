package agent

import (
	"testing"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/hapsnap/hapsnap/internal/testing/metricsdoc"
)

// TestMetricsDocumentIsFresh keeps the page equal to what the agent registers.
func TestMetricsDocumentIsFresh(t *testing.T) {
	t.Parallel()
	registry := prometheus.NewPedanticRegistry()
	none := func() float64 { return 0 }
	m := newMetrics(registry, none, none)
	m.answered(actionAllow, noPolicy)
	m.matched(942100)
	metricsdoc.Check(t, registry, "../../docs/reference/metrics.md", "metrics of the agent", "hapsnap_waf_", *update)
}
