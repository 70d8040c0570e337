package controller

import (
	"context"
	"errors"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/trace"

	"github.com/hapsnap/hapsnap/compiler"
	"github.com/hapsnap/hapsnap/compiler/config"
	"github.com/hapsnap/hapsnap/internal/tracing"
	"github.com/hapsnap/hapsnap/snapshots"
)

// metrics are those of one [Run]. Only its goroutine tells them anything, apart
// from the ages, which are asked for by others.
type metrics struct {
	duration, wait       prometheus.Histogram
	stages               *prometheus.HistogramVec
	compiles, publishes  *prometheus.CounterVec
	objects              *prometheus.GaugeVec
	ingresses            *prometheus.GaugeVec
	quarantined, success prometheus.Gauge
	held, configRefused  prometheus.Gauge
	rivals               prometheus.Gauge
	configReloads        *prometheus.CounterVec
	rendered             *prometheus.CounterVec
	written, used        int // what the counters hold already

	failed            bool         // the last compile
	succeeded, behind atomic.Int64 // Unix nanoseconds; behind is 0 if the store is not
}

// newMetrics registers the metrics of a compiler that starts now.
func newMetrics(r prometheus.Registerer, clock func() time.Time) *metrics {
	m := &metrics{
		duration: histogram("compile_duration_seconds", "Time from reading the files to a validated draft.", 0.01, 12),
		wait:     histogram("queue_wait_seconds", "Time from the first change that a compile serves to its beginning.", 0.001, 15),
		stages: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: "hapsnap_compiler_stage_duration_seconds", Help: "Time that a compile, or a try to publish, spent in a stage. Rounds of a compile add up.",
			Buckets: prometheus.ExponentialBuckets(0.001, 2, 15),
		}, []string{"stage"}),
		compiles:      counters("compiles_total", "Compiles, by result: ok, quarantined (objects were left out), templates (nothing could be compiled), error.", "result", "ok", "quarantined", "templates", "error"),
		publishes:     counters("publishes_total", "Drafts brought to the store, by result: published, unchanged, held (too much is gone, somebody must approve it), replaced (by a newer one, before the store could take it), error.", "result", "published", "unchanged", "held", "replaced", "error"),
		rendered:      counters("rendered_pieces_total", "Pieces of files, by where they came from: template (written anew), memory (used again).", "from", "template", "memory"),
		quarantined:   gauge("quarantined_objects", "Objects that the last compile left out, or a part of them."),
		success:       gauge("last_success_timestamp_seconds", "When the store was last known to hold what the files said."),
		held:          gauge("held_drafts", "1 while the newest draft waits for approval, since too much is gone."),
		rivals:        gauge("rivals", "1 while another compiler, of no common Lease, publishes to the same store."),
		configReloads: counters("config_reloads_total", "Changes of the configuration, by result: accepted, refused, error (it could not be read).", "result", "accepted", "refused", "error"),
		configRefused: gauge("config_refused", "1 while the configuration as it is written is not the one that is used."),
		objects: prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Name: "hapsnap_compiler_objects", Help: "Objects that the last compile read, by kind.",
		}, []string{"kind"}),
		ingresses: prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Name: "hapsnap_compiler_ingresses", Help: "Ingresses that the last compile saw, by class: ours, other (not compiled).",
		}, []string{"class"}),
	}
	for _, name := range compiler.StageNames {
		m.stages.WithLabelValues(name)
	}
	m.succeeded.Store(clock().UnixNano())
	r.MustRegister(m.duration, m.wait, m.stages, m.compiles, m.publishes, m.rendered, m.quarantined, m.success, m.held, m.rivals, m.configReloads, m.configRefused, m.objects, m.ingresses,
		age("seconds_since_last_success", "Time since the store was last known to hold what the files said, or since the start. It grows while nothing changes.", &m.succeeded, clock),
		age("behind_seconds", "For how long there has been a change that the store does not hold yet; 0 while there is none.", &m.behind, clock))
	return m
}

func histogram(name, help string, least float64, buckets int) prometheus.Histogram {
	return prometheus.NewHistogram(prometheus.HistogramOpts{
		Name: "hapsnap_compiler_" + name, Help: help, Buckets: prometheus.ExponentialBuckets(least, 2, buckets),
	})
}

func gauge(name, help string) prometheus.Gauge {
	return prometheus.NewGauge(prometheus.GaugeOpts{Name: "hapsnap_compiler_" + name, Help: help})
}

// counters returns a counter for each value of a label, which begin at 0.
func counters(name, help, label string, values ...string) *prometheus.CounterVec {
	c := prometheus.NewCounterVec(prometheus.CounterOpts{Name: "hapsnap_compiler_" + name, Help: help}, []string{label})
	for _, v := range values {
		c.WithLabelValues(v)
	}
	return c
}

// age returns the time since a moment, computed when it is read, or 0 for the zero moment.
func age(name, help string, since *atomic.Int64, clock func() time.Time) prometheus.Collector {
	return prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: "hapsnap_compiler_" + name, Help: help}, func() float64 {
		at := since.Load()
		if at == 0 {
			return 0
		}
		return max(0, clock().Sub(time.Unix(0, at)).Seconds())
	})
}

// begins takes note of a compile that begins, and of the first change that it
// serves, which is zero where there is none.
func (m *metrics) begins(change, now time.Time) {
	if change.IsZero() {
		return
	}
	m.wait.Observe(max(0, now.Sub(change).Seconds()))
	m.behind.CompareAndSwap(0, change.UnixNano())
}

// spent takes note of what was spent on the stages.
func (m *metrics) spent(took map[string]time.Duration) {
	for stage, d := range took {
		m.stages.WithLabelValues(stage).Observe(d.Seconds())
	}
}

// pieces takes note of how much was rendered since the start.
func (m *metrics) pieces(written, used int) {
	m.rendered.WithLabelValues("template").Add(float64(written - m.written))
	m.rendered.WithLabelValues("memory").Add(float64(used - m.used))
	m.written, m.used = written, used
}

func (m *metrics) compiled(took time.Duration, r compiler.Result, err error) {
	m.duration.Observe(took.Seconds())
	m.compiles.WithLabelValues(resultOf(r, err)).Inc()
	if m.failed = err != nil; !m.failed {
		m.quarantined.Set(float64(len(r.Draft.Quarantined)))
		m.read(r)
	}
}

// resultOf names what came of a compile.
func resultOf(r compiler.Result, err error) string {
	switch {
	case errors.Is(err, compiler.ErrTemplates), errors.Is(err, compiler.ErrGaveUp), errors.Is(err, compiler.ErrNothing):
		return "templates"
	case err != nil:
		return "error"
	case len(r.Draft.Quarantined) > 0:
		return "quarantined"
	}
	return "ok"
}

// read counts the objects that a draft was made from. Kinds that are gone are
// not said to be there.
func (m *metrics) read(r compiler.Result) {
	m.ingresses.WithLabelValues("ours").Set(float64(r.Ingresses.Compiled))
	m.ingresses.WithLabelValues("other").Set(float64(r.Ingresses.Other()))
	m.objects.Reset()
	for _, o := range r.Draft.Provenance.Inputs {
		m.objects.WithLabelValues(o.Kind).Inc()
	}
}

// published takes note of a try to publish. A draft that was kept for long is no
// success if what came after it could not be compiled.
func (m *metrics) published(published bool, err error, now time.Time) {
	m.publishes.WithLabelValues(publishOf(published, err)).Inc()
	if err == nil {
		m.held.Set(0)
	}
	if err == nil && !m.failed {
		m.success.Set(float64(now.UnixNano()) / 1e9)
		m.succeeded.Store(now.UnixNano())
		m.behind.Store(0)
	}
}

// heldDraft counts a draft that waits for approval.
func (m *metrics) heldDraft() {
	m.publishes.WithLabelValues("held").Inc()
	m.held.Set(1)
}

// replacedDraft counts a draft that was never published.
func (m *metrics) replacedDraft() { m.publishes.WithLabelValues("replaced").Inc() }

// publishOf names what came of a try to publish.
func publishOf(published bool, err error) string {
	_, held := errors.AsType[*ShrinkError](err)
	switch {
	case held:
		return "held"
	case err != nil:
		return "error"
	case published:
		return "published"
	}
	return "unchanged"
}

// reconfigured counts a change of the configuration; refused says that the one
// before is used.
func (m *metrics) reconfigured(result string, refused bool) {
	m.configReloads.WithLabelValues(result).Inc()
	m.configRefused.Set(0)
	if refused {
		m.configRefused.Set(1)
	}
}

// Timeline is one compile as it is seen from outside, from its beginning until the
// store has what came of it: how long each stage took, and a trace. The rounds of
// a compile that leaves out objects add up, so that the stages say what a compile
// spends its time on; in the trace each is seen.
//
// Nothing of the objects gets into a trace but how many there are.
type Timeline struct {
	tracer trace.Tracer
	root   trace.Span
	took   map[string]time.Duration
}

// tracerName names the spans' origin.
const tracerName = "github.com/hapsnap/hapsnap/compiler"

// BeginTimeline begins the timeline of a compile, within the trace of ctx if it has
// one.
func BeginTimeline(ctx context.Context, provider trace.TracerProvider, trigger string) *Timeline {
	tracer := provider.Tracer(tracerName)
	_, root := tracer.Start(ctx, "compile", trace.WithAttributes(attribute.String("hapsnap.trigger", trigger)))
	return &Timeline{tracer: tracer, root: root, took: map[string]time.Duration{}}
}

// Within returns a context for what belongs to the compile.
func (t *Timeline) Within(ctx context.Context) context.Context {
	return trace.ContextWithSpan(ctx, t.root)
}

// Stage is the timeline's [compiler.Stages].
func (t *Timeline) Stage(ctx context.Context, name string) (context.Context, func(error)) {
	began := time.Now()
	ctx, span := t.tracer.Start(ctx, name)
	return ctx, func(err error) {
		t.took[name] += time.Since(began)
		tracing.End(span, err)
	}
}

// spent returns the time spent on each stage since it was called last.
func (t *Timeline) spent() map[string]time.Duration {
	took := t.took
	t.took = map[string]time.Duration{}
	return took
}

// waited notes how long the first change, if there was one, had been waiting.
func (t *Timeline) waited(change, began time.Time) {
	if !change.IsZero() {
		t.root.SetAttributes(attribute.Float64("hapsnap.queue_wait_seconds", began.Sub(change).Seconds()))
	}
}

// Sign makes a draft one of this compile's trace, for others to continue it.
func (t *Timeline) Sign(d *snapshots.Draft) {
	d.Provenance.Traceparent = tracing.Traceparent(t.Within(context.Background()))
}

// Compiled notes what came of the compile. It ends here if that is an error.
func (t *Timeline) Compiled(r compiler.Result, err error) {
	t.root.SetAttributes(
		attribute.String("hapsnap.result", resultOf(r, err)),
		attribute.Int("hapsnap.objects", len(r.Draft.Provenance.Inputs)),
		attribute.Int("hapsnap.quarantined", len(r.Draft.Quarantined)))
	if err != nil {
		tracing.End(t.root, err)
	}
}

// Publish brings a result to a store, as [Publish] does, and ends the timeline.
func (t *Timeline) Publish(ctx context.Context, s store, r compiler.Result, g config.ShrinkGuard) (id snapshots.ID, published bool, err error) {
	within, end := compiler.Stages(t.Stage).Begin(t.Within(ctx), compiler.StagePublish)
	t.Sign(&r.Draft)
	id, published, err = Publish(within, s, r, g)
	if end(err); err != nil {
		t.Dropped(publishOf(published, err))
		return id, published, err
	}
	t.Published(id, r.Draft, published)
	return id, published, nil
}

// Published ends the timeline with the snapshot that the store has now.
func (t *Timeline) Published(id snapshots.ID, d snapshots.Draft, published bool) {
	if t.root.IsRecording() { // the digest costs something
		t.root.SetAttributes(
			attribute.String("hapsnap.snapshot", id.String()),
			attribute.String("hapsnap.digest", string(d.Digest())),
			attribute.String("hapsnap.publish", publishOf(published, nil)))
	}
	t.root.End()
}

// Dropped ends a timeline whose draft is not published any more, and says why. It
// changes nothing if it has ended.
func (t *Timeline) Dropped(why string) {
	t.root.SetAttributes(attribute.String("hapsnap.publish", why))
	t.root.End()
}
