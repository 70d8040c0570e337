// Package tracing sends a program's spans to the collector that the standard environment variables of
// OpenTelemetry name, or nowhere if they name none. It also writes and reads the context of a trace as text,
// for a trace that continues in another program.
//
// A slow or missing collector delays nothing and makes nothing fail: spans are dropped, which is logged from
// time to time.
package tracing

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"net/url"
	"os"
	"strings"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace/otlptracehttp"
	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/sdk/resource"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/trace"
	"go.opentelemetry.io/otel/trace/noop"

	"github.com/hapsnap/hapsnap/internal/process"
)

// flushTime is how long the end of a program waits for its last spans to be sent.
const flushTime = 2 * time.Second

// Start returns the provider of a program's tracers, and a function that sends the remaining spans, for at most
// [flushTime]. The service is the name of the program, unless OTEL_SERVICE_NAME says otherwise.
//
// The provider makes no spans unless OTEL_EXPORTER_OTLP_ENDPOINT or OTEL_EXPORTER_OTLP_TRACES_ENDPOINT
// is set. The SDK reads its other variables, such as OTEL_TRACES_SAMPLER. Faults in them are logged: no
// program ends because of its traces.
func Start(ctx context.Context, service string, log *slog.Logger) (provider trace.TracerProvider, stop func()) {
	endpoint, err := collector(os.Getenv)
	if err != nil {
		log.Warn("traces are off", "err", err)
	}
	if err != nil || endpoint == "" {
		return noop.NewTracerProvider(), func() {}
	}
	exporter, err := otlptracehttp.New(ctx)
	if err != nil {
		log.Warn("traces are off", "err", err)
		return noop.NewTracerProvider(), func() {}
	}
	sdk := sdktrace.NewTracerProvider(
		sdktrace.WithBatcher(&forgiving{SpanExporter: exporter, log: log}),
		sdktrace.WithResource(describe(ctx, service, log)))
	log.Info("sending traces", "endpoint", endpoint)
	return sdk, func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), flushTime)
		defer cancel()
		if err := sdk.Shutdown(ctx); err != nil {
			log.Warn("spans lost", "err", err)
		}
	}
}

// collector returns the URL that the environment names, "" if traces are off.
func collector(getenv func(string) string) (string, error) {
	endpoint := cmp.Or(getenv("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT"), getenv("OTEL_EXPORTER_OTLP_ENDPOINT"))
	if endpoint == "" || strings.EqualFold(getenv("OTEL_SDK_DISABLED"), "true") || getenv("OTEL_TRACES_EXPORTER") == "none" {
		return "", nil
	}
	u, err := url.Parse(endpoint)
	if err != nil || (u.Scheme != "http" && u.Scheme != "https") || u.Host == "" {
		return "", fmt.Errorf("the endpoint for OTLP is no URL such as http://collector:4318")
	}
	protocol := cmp.Or(getenv("OTEL_EXPORTER_OTLP_TRACES_PROTOCOL"), getenv("OTEL_EXPORTER_OTLP_PROTOCOL"))
	if protocol == "grpc" {
		return "", fmt.Errorf("the protocol grpc is not spoken, http/protobuf is")
	}
	return u.Redacted(), nil
}

// describe returns the attributes that all spans of a program have. Values from the environment come
// first.
func describe(ctx context.Context, service string, log *slog.Logger) *resource.Resource {
	r, err := resource.New(ctx,
		resource.WithTelemetrySDK(), resource.WithHost(),
		resource.WithAttributes(attribute.String("service.name", service), attribute.String("service.version", process.Version())),
		resource.WithFromEnv())
	if err != nil {
		log.Debug("resource of traces is incomplete", "err", err)
	}
	return r
}

// complainEvery is the shortest time between two log lines that spans cannot be sent.
const complainEvery = time.Minute

// forgiving is an exporter that logs its errors itself, from time to time. The SDK would pass them to a global
// handler.
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

// header is the field of W3C Trace Context (section 3.2) that names a span.
const header = "traceparent"

// Traceparent returns the span of ctx as text, "" if there is none.
func Traceparent(ctx context.Context) string {
	c := propagation.MapCarrier{}
	propagation.TraceContext{}.Inject(ctx, c)
	return c[header]
}

// Continue returns a context whose spans are children of the span that a traceparent names. It ignores a
// traceparent that cannot be read.
func Continue(ctx context.Context, traceparent string) context.Context {
	return propagation.TraceContext{}.Extract(ctx, propagation.MapCarrier{header: traceparent})
}

// End ends a span, with the error of the work that it stands for. The error is sent to the collector,
// so it must not hold secrets.
func End(span trace.Span, err error) {
	if err != nil {
		span.SetStatus(codes.Error, err.Error())
	}
	span.End()
}
