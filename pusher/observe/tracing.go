package observe

import (
	"context"
	"errors"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/trace"

	"github.com/hapsnap/hapsnap/internal/tracing"
	"github.com/hapsnap/hapsnap/pusher/push"
	"github.com/hapsnap/hapsnap/pusher/rollout"
	"github.com/hapsnap/hapsnap/snapshots"
)

// tracerName names the origin of the spans.
const tracerName = "github.com/hapsnap/hapsnap/pusher"

// spans has the spans of the current rollout. A rollout continues the trace of the compile that
// published its snapshot. If the pusher restarts, it begins new spans in the same trace. Only one
// goroutine uses it.
type spans struct {
	tracer  trace.Tracer
	target  snapshots.ID
	started time.Time // when the rollout began
	step    step
	// The spans are nil if there is no rollout.
	rollout, part trace.Span
}

// step is a part of a rollout that has a span of its own: a wave, or the undo.
type step struct {
	undoing bool
	wave    int
}

func (s step) String() string {
	if s.undoing {
		return "undo"
	}
	return "wave"
}

// follow begins and ends spans according to the state. traceparent is that of the target, and known
// says whether the target was read.
func (t *spans) follow(s rollout.State, traceparent string, known bool) {
	r := s.Rollout
	if t.rollout != nil && (r == nil || r.Target != t.target || !r.Started.Equal(t.started)) {
		t.end(t.outcome(s))
	}
	if r == nil || !known {
		return
	}
	if t.rollout == nil {
		t.target, t.started = r.Target, r.Started
		_, t.rollout = t.tracer.Start(tracing.Continue(context.Background(), traceparent), "rollout", trace.WithAttributes(
			attribute.String("hapsnap.snapshot", r.Target.String()), attribute.String("hapsnap.intent", r.Intent)))
	}
	now := step{r.Phase == rollout.Undoing, r.Wave}
	if t.part != nil && now != t.step {
		t.part.End()
		t.part = nil
	}
	if t.part == nil {
		t.step = now
		_, t.part = t.tracer.Start(within(t.rollout), now.String(), trace.WithAttributes(
			attribute.Int("hapsnap.wave", r.Wave+1), attribute.StringSlice("hapsnap.members", r.Members)))
	}
}

func within(span trace.Span) context.Context {
	return trace.ContextWithSpan(context.Background(), span)
}

// outcome says how the rollout ended. It returns an error if the rollout failed.
func (t *spans) outcome(s rollout.State) (result string, err error) {
	switch {
	case t.part != nil && t.step.undoing:
		return "failed", errors.New(reasonOf(t.target, s.Failed))
	case s.Good == t.target:
		return "done", nil
	}
	return "replaced", nil
}

// reasonOf returns why a snapshot failed.
func reasonOf(id snapshots.ID, failed []rollout.Failure) string {
	for _, f := range failed {
		if f.Snapshot == id {
			return f.Reason
		}
	}
	return "undone"
}

// end ends the spans.
func (t *spans) end(result string, err error) {
	if t.rollout == nil {
		return
	}
	if t.part != nil {
		t.part.End()
	}
	t.rollout.SetAttributes(attribute.String("hapsnap.result", result))
	tracing.End(t.rollout, err)
	t.rollout, t.part, t.target = nil, nil, snapshots.ID{}
}

// PushSpan begins the span of a push, and returns a context with it. A push of a rollout belongs to
// the trace of the rollout. Any other push has a trace of its own, with a link to the trace in
// which its snapshot was published, perhaps weeks ago.
func (o *Observer) PushSpan(ctx context.Context, p rollout.Push, traceparent string) context.Context {
	t := &o.spans
	options := []trace.SpanStartOption{trace.WithAttributes(
		attribute.String("hapsnap.instance", p.Instance), attribute.String("hapsnap.snapshot", p.Snapshot.String()),
		attribute.String("hapsnap.why", string(p.Purpose)))}
	in := context.Background()
	if t.part != nil && (p.Purpose == rollout.Wave || p.Purpose == rollout.Undo) {
		in = within(t.part)
	} else {
		options = append(options, linked(traceparent))
	}
	_, span := t.tracer.Start(in, "push", options...)
	return trace.ContextWithSpan(ctx, span)
}

// UpdateSpan begins the span of a change at run time.
func (o *Observer) UpdateSpan(ctx context.Context, instance string, running snapshots.ID, traceparent string) context.Context {
	_, span := o.spans.tracer.Start(context.Background(), "update", linked(traceparent), trace.WithAttributes(
		attribute.String("hapsnap.instance", instance), attribute.String("hapsnap.snapshot", running.String())))
	return trace.ContextWithSpan(ctx, span)
}

// linked links a span to the trace of a snapshot, if that has one.
func linked(traceparent string) trace.SpanStartOption {
	c := trace.SpanContextFromContext(tracing.Continue(context.Background(), traceparent))
	if !c.IsValid() {
		return trace.WithLinks()
	}
	return trace.WithLinks(trace.Link{SpanContext: c})
}

// EndJob ends the span in the context of a push or an update. If there is an error, it records the
// text for people, which contains no secrets.
func EndJob(ctx context.Context, reloaded bool, outcome rollout.Outcome, err error) {
	span := trace.SpanFromContext(ctx)
	kind := "runtime"
	if reloaded {
		kind = "reload"
	}
	span.SetAttributes(attribute.String("hapsnap.kind", kind), attribute.String("hapsnap.result", string(outcome)))
	if err != nil {
		err = errors.New(push.Gist(err))
	}
	tracing.End(span, err)
}
