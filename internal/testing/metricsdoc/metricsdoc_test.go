package metricsdoc

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
)

func registry() (*prometheus.Registry, *prometheus.CounterVec) {
	r := prometheus.NewRegistry()
	c := prometheus.NewCounterVec(prometheus.CounterOpts{Name: "app_sent_bytes_total", Help: "Sent."}, []string{"peer", "kind"})
	r.MustRegister(c,
		prometheus.NewHistogram(prometheus.HistogramOpts{Name: "app_wait_seconds", Help: "Waited."}),
		prometheus.NewGauge(prometheus.GaugeOpts{Name: "other", Help: "Not ours."}))
	return r, c
}

func TestTable(t *testing.T) {
	t.Parallel()
	r, c := registry()
	if _, err := Table(r, "app_"); err == nil {
		t.Error("a metric without a sample is left out silently")
	}
	c.WithLabelValues("a", "b")
	got, err := Table(r, "app_")
	_, rows, _ := strings.Cut(got, "|---|---|---|---|---|\n")
	want := "| `app_sent_bytes_total` | counter | `kind`, `peer` | bytes | Sent. |\n| `app_wait_seconds` | histogram |  | seconds | Waited. |\n"
	if err != nil || rows != want {
		t.Errorf("%v\n%s", err, got)
	}
}

func TestUnknown(t *testing.T) {
	t.Parallel()
	r, c := registry()
	c.WithLabelValues("a", "b")
	got, err := Unknown("rate(app_wait_seconds_bucket[1m]) app_wait_seconds app_sent_bytes_total_sum app_gone app_gone other_gone", "app_", r)
	if want := []string{"app_sent_bytes_total_sum", "app_gone"}; err != nil || !slices.Equal(got, want) {
		t.Errorf("%q, %v, want %q", got, err, want)
	}
}

func TestReplace(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "page.md")
	if err := os.WriteFile(file, []byte("a\n<!-- x -->\nold\n<!-- end of x -->\nb\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := Replace(file, "x", "new\n"); err != nil {
		t.Fatal(err)
	}
	got, err := os.ReadFile(file)
	if want := "a\n<!-- x -->\nnew\n<!-- end of x -->\nb\n"; err != nil || string(got) != want {
		t.Errorf("%q, %v", got, err)
	}
	if err := Replace(file, "y", ""); err == nil {
		t.Error("a section that is not there was replaced")
	}
}
