package controller

import (
	"context"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/trace"

	"github.com/hapsnap/hapsnap/compiler"
	"github.com/hapsnap/hapsnap/compiler/config"
	"github.com/hapsnap/hapsnap/internal/tracing"
	"github.com/hapsnap/hapsnap/snapshots"
)

// Timeline observes one compile from its beginning until the store has its result. It records how long each stage took,
// and a trace. If a compile leaves out objects and so repeats stages, their times add up; the trace shows each of them.
//
// A trace contains the number of objects, and nothing else about them.
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

// Within returns a context for work that belongs to the compile.
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

// waited records how long the first change waited, if there was one.
func (t *Timeline) waited(change, began time.Time) {
	if !change.IsZero() {
		t.root.SetAttributes(attribute.Float64("hapsnap.queue_wait_seconds", began.Sub(change).Seconds()))
	}
}

// Sign puts this compile's trace into a draft, so that the pusher can continue it.
func (t *Timeline) Sign(d *snapshots.Draft) {
	d.Provenance.Traceparent = tracing.Traceparent(t.Within(context.Background()))
}

// Compiled records the result of the compile. An error ends the timeline.
func (t *Timeline) Compiled(r compiler.Result, err error) {
	t.root.SetAttributes(
		attribute.String("hapsnap.result", resultOf(r, err)),
		attribute.Int("hapsnap.objects", len(r.Draft.Provenance.Inputs)),
		attribute.Int("hapsnap.quarantined", r.LeftOut))
	if err != nil {
		tracing.End(t.root, err)
	}
}

// Publish publishes a result to a store, as the function [Publish] does, and ends the timeline.
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

// Dropped ends the timeline of a draft that will not be published, and says why. It changes nothing if the timeline has
// ended.
func (t *Timeline) Dropped(why string) {
	t.root.SetAttributes(attribute.String("hapsnap.publish", why))
	t.root.End()
}
