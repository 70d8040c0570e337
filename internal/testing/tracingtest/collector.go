package tracingtest

import (
	"encoding/hex"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"

	collector "go.opentelemetry.io/proto/otlp/collector/trace/v1"
	common "go.opentelemetry.io/proto/otlp/common/v1"
	sent "go.opentelemetry.io/proto/otlp/trace/v1"
	"google.golang.org/protobuf/proto"
)

// Collector is an endpoint of OTLP/HTTP. It may be used by several goroutines.
type Collector struct {
	// URL is its endpoint, for OTEL_EXPORTER_OTLP_ENDPOINT.
	URL    string
	server *httptest.Server
	hang   chan struct{} // closed with the collector; nil if it answers

	mu    sync.Mutex
	spans []Span
	calls int
	wrong []error
}

// Start starts a collector that answers.
func Start() *Collector { return start(&Collector{}) }

// StartHanging starts a collector that takes requests and never answers.
func StartHanging() *Collector { return start(&Collector{hang: make(chan struct{})}) }

func start(c *Collector) *Collector {
	mux := http.NewServeMux()
	mux.HandleFunc("POST /v1/traces", c.take)
	c.server = httptest.NewServer(mux)
	c.URL = c.server.URL
	return c
}

// Close ends the collector.
func (c *Collector) Close() {
	if c.hang != nil {
		close(c.hang)
	}
	c.server.Close()
}

// Calls returns how many requests came.
func (c *Collector) Calls() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.calls
}

// Spans returns the spans that came, and what was wrong with requests.
func (c *Collector) Spans() ([]Span, []error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return append([]Span(nil), c.spans...), append([]error(nil), c.wrong...)
}

func (c *Collector) take(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	c.mu.Lock()
	c.calls++
	c.mu.Unlock()
	if c.hang != nil {
		<-c.hang
		return
	}
	var request collector.ExportTraceServiceRequest
	if err == nil {
		err = proto.Unmarshal(body, &request)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if err != nil {
		c.wrong = append(c.wrong, err)
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	for _, of := range request.GetResourceSpans() {
		service := attributes(of.GetResource().GetAttributes())["service.name"]
		for _, scope := range of.GetScopeSpans() {
			for _, s := range scope.GetSpans() {
				c.spans = append(c.spans, read(service, s))
			}
		}
	}
}

// Span is a span that was sent.
type Span struct {
	Service, Name     string
	Trace, ID, Parent string   // in hexadecimal; a root has no parent
	Links             []string // the traces that it is linked to
	Attributes        map[string]string
	Error             string
}

func read(service string, s *sent.Span) Span {
	out := Span{
		Service: service, Name: s.GetName(), Attributes: attributes(s.GetAttributes()), Error: s.GetStatus().GetMessage(),
		Trace: hex.EncodeToString(s.GetTraceId()), ID: hex.EncodeToString(s.GetSpanId()), Parent: hex.EncodeToString(s.GetParentSpanId()),
	}
	for _, l := range s.GetLinks() {
		out.Links = append(out.Links, hex.EncodeToString(l.GetTraceId()))
	}
	return out
}

func attributes(list []*common.KeyValue) map[string]string {
	out := map[string]string{}
	for _, a := range list {
		out[a.GetKey()] = text(a.GetValue())
	}
	return out
}

func text(v *common.AnyValue) string {
	if list := v.GetArrayValue(); list != nil {
		var parts []string
		for _, part := range list.GetValues() {
			parts = append(parts, text(part))
		}
		return strings.Join(parts, ",")
	}
	if _, is := v.GetValue().(*common.AnyValue_IntValue); is {
		return strings.TrimPrefix(v.String(), "int_value:")
	}
	return v.GetStringValue()
}
