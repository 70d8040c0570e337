package tracing

import (
	"context"
	"log/slog"
	"time"

	sdktrace "go.opentelemetry.io/otel/sdk/trace"
)

// complainEvery is how often at most it is logged that spans cannot be sent.
const complainEvery = time.Minute

// forgiving is an exporter that logs its errors itself, now and then. The SDK would
// tell them to a handler that is global.
type forgiving struct {
	sdktrace.SpanExporter
	log        *slog.Logger
	complained time.Time // exports come one at a time
	lost       int       // spans since then
}

// ExportSpans sends spans, and forgets those that cannot be sent.
func (f *forgiving) ExportSpans(ctx context.Context, spans []sdktrace.ReadOnlySpan) error {
	if err := f.SpanExporter.ExportSpans(ctx, spans); err != nil {
		f.complain(err, len(spans), time.Now())
	}
	return nil
}

func (f *forgiving) complain(err error, lost int, now time.Time) {
	f.lost += lost
	if !f.complained.IsZero() && now.Sub(f.complained) < complainEvery {
		return
	}
	f.log.Warn("traces not sent", "err", err, "spans", f.lost)
	f.complained, f.lost = now, 0
}
