// Package tracingtest is a collector of traces for tests: it receives what programs send with OTLP over HTTP,
// and shows it as a tree.
package tracingtest

import (
	"encoding/hex"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
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

// StartHanging starts a collector that accepts requests and never answers.
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

// shown are the attributes that a tree shows: those that are the same in each run.
var shown = []string{"trigger", "result", "publish", "quarantined", "wave", "members", "instance", "why", "kind"}

// Tree writes each trace as a tree, without what differs between runs. Siblings are sorted, and equal ones are
// counted. An empty line separates two traces.
func Tree(spans []Span) string {
	children, known := map[string][]Span{}, map[string]bool{}
	for _, s := range spans {
		known[s.ID] = true
	}
	var roots []Span
	for _, s := range spans {
		if known[s.Parent] {
			children[s.Parent] = append(children[s.Parent], s)
		} else {
			roots = append(roots, s)
		}
	}
	var trees []string
	for _, group := range byTrace(roots) {
		trees = append(trees, "trace\n"+strings.Join(branches(group, children, "  "), ""))
	}
	slices.Sort(trees)
	return strings.Join(trees, "\n")
}

// byTrace returns the roots of each trace. There is more than one where the parent
// is not among the spans.
func byTrace(roots []Span) map[string][]Span {
	out := map[string][]Span{}
	for _, s := range roots {
		out[s.Trace] = append(out[s.Trace], s)
	}
	return out
}

func branches(siblings []Span, children map[string][]Span, indent string) []string {
	var out []string
	for _, s := range siblings {
		out = append(out, indent+line(s)+"\n"+strings.Join(branches(children[s.ID], children, indent+"  "), ""))
	}
	slices.Sort(out)
	return counted(out)
}

// counted joins equal branches.
func counted(sorted []string) []string {
	var out []string
	for len(sorted) > 0 {
		n := 1
		for n < len(sorted) && sorted[n] == sorted[0] {
			n++
		}
		branch := sorted[0]
		if n > 1 {
			branch = strings.Replace(branch, "\n", fmt.Sprintf(" x%d\n", n), 1)
		}
		out, sorted = append(out, branch), sorted[n:]
	}
	return out
}

func line(s Span) string {
	words := []string{strings.TrimPrefix(s.Service, "hapsnap-"), s.Name}
	for _, name := range shown {
		if value, ok := s.Attributes["hapsnap."+name]; ok {
			words = append(words, name+"="+value)
		}
	}
	if len(s.Links) > 0 {
		words = append(words, "linked")
	}
	if s.Error != "" {
		words = append(words, fmt.Sprintf("error=%q", s.Error))
	}
	return strings.Join(words, " ")
}
