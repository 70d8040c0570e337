package explain

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/hapsnap/hapsnap/compiler/diag"
	"github.com/hapsnap/hapsnap/compiler/inputs"
	"github.com/hapsnap/hapsnap/compiler/render"
	"github.com/hapsnap/hapsnap/compiler/routing"
	"github.com/hapsnap/hapsnap/internal/process"
	"github.com/hapsnap/hapsnap/snapshots"
)

// ingress returns an Ingress of a cluster, or of a file.
func ingress(name, file string, annotations map[string]string) inputs.Object[networkingv1.Ingress] {
	o := inputs.Object[networkingv1.Ingress]{
		Ref:   diag.Object{Kind: "Ingress", Namespace: "shop", Name: name},
		Value: &networkingv1.Ingress{ObjectMeta: metav1.ObjectMeta{Annotations: annotations}},
	}
	if file != "" {
		o.At = func(...any) diag.Position { return diag.Position{File: file, Line: 7, Column: 3} }
	}
	return o
}

func TestExplain(t *testing.T) {
	t.Parallel()
	web := ingress("web", "", map[string]string{"hapsnap.dev/balance": "leastconn", "other": "leastconn", "hapsnap.dev/empty": ""})
	api := ingress("api", "m.yaml", map[string]string{"hapsnap.dev/balance": "leastconn"})
	in := inputs.Inputs{Ingresses: []inputs.Object[networkingv1.Ingress]{web, api}}
	files := []snapshots.File{
		{Path: "endpoints.yaml", Content: []byte("services:\n")},
		{Path: "haproxy.cfg", Content: []byte("balance leastconn\n\nbalance leastconn\n")},
	}
	backend := routing.Origin{Object: web.Ref, Field: "spec.defaultBackend"}
	annotation := routing.Origin{Object: api.Ref, Position: api.Position(), Field: `metadata.annotations["hapsnap.dev/balance"]`}
	a := render.Artifact{Origins: map[string][]*render.LineOrigin{"haproxy.cfg": {
		{Template: "t.cfg", Line: 4, Objects: []routing.Origin{backend}}, {},
		{Template: "t.cfg", Line: 4, Objects: []routing.Origin{annotation}},
	}}}
	for place, want := range map[Place]Explanation{
		{"haproxy.cfg", 1}: {
			Text: "balance leastconn", Template: &Template{"t.cfg", 4},
			Origins: []Origin{ // the other Ingress does not count, and the other annotation is not ours
				{Kind: "Ingress", Namespace: "shop", Name: "web", Field: "spec.defaultBackend"},
				{Kind: "Ingress", Namespace: "shop", Name: "web", Field: annotation.Field, Value: "leastconn"},
			},
		},
		{"haproxy.cfg", 2}: {Note: "no template wrote it: it separates the output of templates", Origins: []Origin{}},
		{"haproxy.cfg", 3}: {
			Text: "balance leastconn", Template: &Template{"t.cfg", 4},
			Origins: []Origin{{
				Kind: "Ingress", Namespace: "shop", Name: "api", Field: annotation.Field, Value: "leastconn",
				File: "m.yaml", Line: 7, Column: 3,
			}},
		},
		{"endpoints.yaml", 1}: {Text: "services:", Note: "endpoints are recorded from EndpointSlices", Origins: []Origin{}},
	} {
		want.File, want.Line = place.File, place.Line
		got, err := Explain(place, files, a, in)
		if diff := cmp.Diff(want, got); err != nil || diff != "" {
			t.Errorf("%v: %v (-want +got)\n%s", place, err, diff)
		}
	}
}

func TestOnLine(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		line, value string
		want        bool
	}{
		{"    balance leastconn", "leastconn", true},
		{"    balance leastconn", "least", false},
		{"    balance uri depth 3", "uri depth 3", true},
		{"    balance uri depth 3", "uri depth 4", false},
		{"    balance uri", "uri depth 3", false},
		{`    http-request set-header X "a b"`, "b", true},
		{"    balance leastconn", "", false},
		{"", "x", false},
	} {
		if got := onLine(c.line, c.value); got != c.want {
			t.Errorf("%q on %q: %v", c.value, c.line, got)
		}
	}
}

// Fields of objects with content are found by their values, even if a template joins them with others.
func TestExplainFields(t *testing.T) {
	t.Parallel()
	widget := inputs.Other(&unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "example.com/v1", "kind": "Widget",
		"metadata": map[string]any{"namespace": "shop", "name": "a", "labels": map[string]any{"tier": "web"}},
		"spec":     map[string]any{"hosts": []any{"a.example", "b.example"}, "path": "/a", "port": int64(80), "off": false},
	}})
	const text = "b.example|/a/ web shop a 8080"
	files := []snapshots.File{{Path: "maps/w.map", Content: []byte(text + "\n")}}
	a := render.Artifact{Origins: map[string][]*render.LineOrigin{"maps/w.map": {{Template: "t.map", Line: 1, Objects: []routing.Origin{{Object: widget.Ref}}}}}}
	got, err := Explain(Place{"maps/w.map", 1}, files, a, inputs.Inputs{Others: []inputs.Object[unstructured.Unstructured]{widget}})
	if err != nil {
		t.Fatal(err)
	}
	want := []Origin{
		{Kind: "Widget", Namespace: "shop", Name: "a"},
		{Kind: "Widget", Namespace: "shop", Name: "a", Field: "metadata.labels.tier", Value: "web"},
		{Kind: "Widget", Namespace: "shop", Name: "a", Field: "spec.hosts[1]", Value: "b.example"},
	}
	if diff := cmp.Diff(want, got.Origins); diff != "" {
		t.Error(diff)
	}
}

func TestParsePlace(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]Place{
		"haproxy.cfg:120":                  {"haproxy.cfg", 120},
		"out/maps/host.map:3":              {"out/maps/host.map", 3},
		"haproxy.cfg:120:5":                {"haproxy.cfg", 120},
		"haproxy.cfg:120:    bind :80":     {"haproxy.cfg", 120},
		"haproxy.cfg:-1":                   {"haproxy.cfg", -1},
		"haproxy.cfg":                      {},
		"haproxy.cfg:":                     {},
		"haproxy.cfg:x":                    {},
		"haproxy.cfg:1x":                   {},
		"haproxy.cfg:999999999999999999":   {"haproxy.cfg", 999999999999999999},
		"haproxy.cfg:99999999999999999999": {},
	} {
		got, err := ParsePlace(text)
		if got != want || (err == nil) != (want != Place{}) {
			t.Errorf("%s: %v, %v", text, got, err)
		}
		if err != nil && (process.Code(t.Context(), err) != process.ExitUsage || process.Hint(err) == "") {
			t.Errorf("%s: %v has exit code %d, hint %q", text, err, process.Code(t.Context(), err), process.Hint(err))
		}
	}
}

func TestPlaceIsFound(t *testing.T) {
	t.Parallel()
	files := []snapshots.File{
		{Path: "files/a.map", Content: []byte("x\n")},
		{Path: "haproxy.cfg", Content: []byte("one\ntwo\n")},
		{Path: "maps/a.map", Content: []byte("first\nlast")},
	}
	for _, c := range []struct {
		place             Place
		path, text, wrong string
	}{
		{place: Place{"haproxy.cfg", 1}, path: "haproxy.cfg", text: "one"},
		{place: Place{"./out/haproxy.cfg", 2}, path: "haproxy.cfg", text: "two"},
		{place: Place{"out/maps/a.map", 2}, path: "maps/a.map", text: "last"},
		{place: Place{"haproxy.cfg", 3}, wrong: "haproxy.cfg has 2 lines, and no line 3"},
		{place: Place{"haproxy.cfg", 0}, wrong: "and no line 0"},
		{place: Place{"haproxy.cfg", -2}, wrong: "and no line -2"},
		{place: Place{"a.map", 1}, wrong: "a.map is not a file of the snapshot"},
		{place: Place{"xhaproxy.cfg", 1}, wrong: "xhaproxy.cfg is not a file"},
		{place: Place{"", 1}, wrong: "is not a file"},
	} {
		path, text, err := c.place.find(files)
		if path != c.path || text != c.text {
			t.Errorf("%v: %q %q", c.place, path, text)
		}
		if (err != nil) != (c.wrong != "") || err != nil && !strings.Contains(err.Error(), c.wrong) {
			t.Errorf("%v: %v, want %q", c.place, err, c.wrong)
		}
	}
}
