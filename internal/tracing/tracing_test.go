package tracing

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"strings"
	"testing"
	"time"

	sdktrace "go.opentelemetry.io/otel/sdk/trace"

	"github.com/hapsnap/hapsnap/internal/testing/tracingtest"
)

func TestCollectorOfTheEnvironment(t *testing.T) {
	t.Parallel()
	const base, traces = "OTEL_EXPORTER_OTLP_ENDPOINT", "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT"
	for name, test := range map[string]struct {
		env   map[string]string
		want  string
		fails bool
	}{
		"nothing":              {map[string]string{}, "", false},
		"endpoint":             {map[string]string{base: "http://c:4318"}, "http://c:4318", false},
		"of traces":            {map[string]string{base: "http://c:4318", traces: "https://t/v1/traces"}, "https://t/v1/traces", false},
		"password":             {map[string]string{base: "http://u:secret@c:4318"}, "http://u:xxxxx@c:4318", false},
		"disabled":             {map[string]string{base: "http://c:4318", "OTEL_SDK_DISABLED": "TRUE"}, "", false},
		"no exporter":          {map[string]string{base: "http://c:4318", "OTEL_TRACES_EXPORTER": "none"}, "", false},
		"no scheme":            {map[string]string{base: "collector:4318"}, "", true},
		"no URL":               {map[string]string{base: "http://c:port"}, "", true},
		"gRPC":                 {map[string]string{base: "http://c:4317", "OTEL_EXPORTER_OTLP_PROTOCOL": "grpc"}, "", true},
		"HTTP for traces only": {map[string]string{base: "http://c:4318", "OTEL_EXPORTER_OTLP_PROTOCOL": "grpc", "OTEL_EXPORTER_OTLP_TRACES_PROTOCOL": "http/protobuf"}, "http://c:4318", false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got, err := collector(func(name string) string { return test.env[name] })
			if got != test.want || (err != nil) != test.fails {
				t.Errorf("%q, %v", got, err)
			}
			if err != nil && strings.Contains(err.Error(), "secret") {
				t.Errorf("the error tells a password: %v", err)
			}
		})
	}
}

func TestOffWithoutAnEndpoint(t *testing.T) {
	provider, stop := Start(t.Context(), "test", slog.New(slog.DiscardHandler))
	defer stop()
	ctx, span := provider.Tracer("test").Start(t.Context(), "span")
	defer span.End()
	if span.IsRecording() || Traceparent(ctx) != "" {
		t.Errorf("a span is recorded: %q", Traceparent(ctx))
	}
	// A trace from another program continues.
	const parent = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
	ctx, inner := provider.Tracer("test").Start(Continue(t.Context(), parent), "span")
	defer inner.End()
	if got := Traceparent(ctx); got != parent {
		t.Errorf("traceparent %q, want %q", got, parent)
	}
	if got := Traceparent(Continue(t.Context(), "00-nonsense")); got != "" {
		t.Errorf("nonsense goes on as %q", got)
	}
}

func TestSpansAreSentAtTheEnd(t *testing.T) {
	c := tracingtest.Start()
	defer c.Close()
	t.Setenv("OTEL_EXPORTER_OTLP_ENDPOINT", c.URL)
	provider, stop := Start(t.Context(), "hapsnap-test", slog.New(slog.DiscardHandler))
	ctx, root := provider.Tracer("test").Start(t.Context(), "root")
	_, child := provider.Tracer("test").Start(Continue(context.Background(), Traceparent(ctx)), "child")
	End(child, errors.New("gone"))
	End(root, nil)
	stop()
	spans, wrong := c.Spans()
	want := "trace\n  test root\n    test child error=\"gone\"\n"
	if got := tracingtest.Tree(spans); got != want || len(wrong) > 0 {
		t.Errorf("%v\n%s", wrong, got)
	}
}

func TestCollectorThatHangsDelaysLittle(t *testing.T) {
	c := tracingtest.StartHanging()
	defer c.Close()
	t.Setenv("OTEL_EXPORTER_OTLP_ENDPOINT", c.URL)
	var log bytes.Buffer
	provider, stop := Start(t.Context(), "test", slog.New(slog.NewTextHandler(&log, nil)))
	_, span := provider.Tracer("test").Start(t.Context(), "root")
	span.End()
	began := time.Now()
	stop()
	// Without a deadline, the exporter gives a request ten seconds, and then retries.
	if took := time.Since(began); took > 9*time.Second {
		t.Errorf("the end took %s", took)
	}
	if !strings.Contains(log.String(), "spans lost") {
		t.Errorf("log %q", log.String())
	}
}

// failing is an exporter that always fails.
type failing struct{ sdktrace.SpanExporter }

func (failing) ExportSpans(context.Context, []sdktrace.ReadOnlySpan) error {
	return errors.New("connection refused")
}

func TestComplaintsAreRare(t *testing.T) {
	t.Parallel()
	var log bytes.Buffer
	f := &forgiving{SpanExporter: failing{}, log: slog.New(slog.NewTextHandler(&log, nil))}
	if err := f.ExportSpans(t.Context(), make([]sdktrace.ReadOnlySpan, 1)); err != nil {
		t.Error("the SDK hears of it:", err)
	}
	now := f.complained
	for range 5 {
		f.complain(errors.New("connection refused"), 2, now.Add(complainEvery/2))
	}
	f.complain(errors.New("connection refused"), 2, now.Add(complainEvery))
	if n := strings.Count(log.String(), "traces not sent"); n != 2 || !strings.Contains(log.String(), "spans=12") {
		t.Errorf("%d complaints in\n%s", n, log.String())
	}
}
