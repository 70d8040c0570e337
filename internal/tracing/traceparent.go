package tracing

import (
	"context"

	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/trace"
)

// header is the field of W3C Trace Context (section 3.2) that names a span.
const header = "traceparent"

// Traceparent returns the span of ctx as text, "" if there is none.
func Traceparent(ctx context.Context) string {
	c := propagation.MapCarrier{}
	propagation.TraceContext{}.Inject(ctx, c)
	return c[header]
}

// Continue returns a context whose spans are children of the one that a traceparent
// names. A traceparent that cannot be read is none.
func Continue(ctx context.Context, traceparent string) context.Context {
	return propagation.TraceContext{}.Extract(ctx, propagation.MapCarrier{header: traceparent})
}

// End ends a span, with the error that what it stands for ended with. The error is
// sent: it must not hold what nobody may read.
func End(span trace.Span, err error) {
	if err != nil {
		span.SetStatus(codes.Error, err.Error())
	}
	span.End()
}
