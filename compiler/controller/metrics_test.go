package controller

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/hapsnap/hapsnap/compiler"
	"github.com/hapsnap/hapsnap/snapshots"
)

// clock is a clock that a test sets.
type clock struct{ now time.Time }

func (c *clock) read() time.Time { return c.now }

func (c *clock) pass(d time.Duration) time.Time {
	c.now = c.now.Add(d)
	return c.now
}

// expect compares the samples of metrics, without help and type.
func expect(t *testing.T, r *prometheus.Registry, when string, want map[string]float64) {
	t.Helper()
	families, err := r.Gather()
	if err != nil {
		t.Fatal(err)
	}
	got := map[string]float64{}
	for _, f := range families {
		for _, m := range f.GetMetric() {
			var labels []string
			for _, l := range m.GetLabel() {
				labels = append(labels, l.GetValue())
			}
			name := strings.TrimPrefix(f.GetName(), "hapsnap_compiler_") + "{" + strings.Join(labels, ",") + "}"
			got[name] = m.GetGauge().GetValue() + m.GetCounter().GetValue() + m.GetHistogram().GetSampleSum()
		}
	}
	for name, value := range want {
		if seen, ok := got[name]; !ok || seen != value {
			t.Errorf("%s: %s is %g (there: %v), want %g", when, name, seen, ok, value)
		}
	}
}

func drafted(kinds ...string) compiler.Result {
	var r compiler.Result
	for _, kind := range kinds {
		r.Draft.Provenance.Inputs = append(r.Draft.Provenance.Inputs, snapshots.Input{Kind: kind})
	}
	return r
}

// Ages are computed when they are read. A change counts as not published from its time until the store has it.
func TestAges(t *testing.T) {
	t.Parallel()
	c := clock{time.Date(2026, 11, 21, 3, 0, 0, 0, time.UTC)}
	r := prometheus.NewPedanticRegistry()
	m := newMetrics(r, c.read)
	const since, behind = "seconds_since_last_success{}", "behind_seconds{}"
	c.pass(2 * time.Second)
	expect(t, r, "after the start", map[string]float64{since: 2, behind: 0})
	change := c.now
	m.begins(change, c.pass(3*time.Second))
	expect(t, r, "compiling", map[string]float64{since: 5, behind: 3, "queue_wait_seconds{}": 3})
	m.compiled(time.Second, drafted(), nil)
	m.published(false, errors.New("gone"), c.pass(time.Second))
	change = c.now
	m.begins(change, c.pass(time.Second))
	expect(t, r, "a later change", map[string]float64{since: 7, behind: 5, "queue_wait_seconds{}": 4})
	m.compiled(time.Second, compiler.Result{}, compiler.ErrTemplates)
	m.published(true, nil, c.pass(time.Second))
	expect(t, r, "an older draft", map[string]float64{since: 8, behind: 6})
	m.begins(time.Time{}, c.now)
	m.compiled(time.Second, drafted(), nil)
	m.published(true, nil, c.now)
	c.pass(time.Minute)
	expect(t, r, "published", map[string]float64{
		since: 60, behind: 0, "queue_wait_seconds{}": 4,
		"publishes_total{error}": 1, "publishes_total{published}": 2, "compiles_total{ok}": 2, "compiles_total{templates}": 1,
	})
}

func TestObjectsByKind(t *testing.T) {
	t.Parallel()
	r := prometheus.NewPedanticRegistry()
	m := newMetrics(r, time.Now)
	m.compiled(time.Second, drafted("Ingress", "Service", "Ingress", "Secret"), nil)
	expect(t, r, "objects", map[string]float64{"objects{Ingress}": 2, "objects{Service}": 1, "objects{Secret}": 1})
	m.compiled(time.Second, compiler.Result{}, compiler.ErrTemplates)
	expect(t, r, "what was read last stays", map[string]float64{"objects{Ingress}": 2})
	m.compiled(time.Second, drafted("Ingress"), nil)
	if n := testutil.CollectAndCount(m.objects); n != 1 {
		t.Errorf("%d kinds, want 1", n)
	}
}

func TestPiecesAreCountedOnce(t *testing.T) {
	t.Parallel()
	r := prometheus.NewPedanticRegistry()
	m := newMetrics(r, time.Now)
	m.pieces(10, 0)
	m.pieces(12, 8)
	expect(t, r, "pieces", map[string]float64{"rendered_pieces_total{template}": 12, "rendered_pieces_total{memory}": 8})
}
