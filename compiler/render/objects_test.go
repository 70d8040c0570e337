package render_test

import (
	"math"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/hapsnap/hapsnap/compiler/config/kinds"
	"github.com/hapsnap/hapsnap/compiler/diag"
	"github.com/hapsnap/hapsnap/compiler/render"
	"github.com/hapsnap/hapsnap/compiler/routing"
)

// widget is an object of a custom kind.
func widget(name string, spec map[string]any) render.Object {
	return render.Object{
		Origin: routing.Origin{
			Object:   diag.Object{APIVersion: "example.com/v1", Kind: "Widget", Namespace: "shop", Name: name},
			Position: diag.Position{File: "w.yaml", Line: 1},
		},
		APIVersion: "example.com/v1", Whole: map[string]any{"spec": spec},
	}
}

// withWidgets is the shop with widgets in any order.
func withWidgets(widgets ...render.Object) render.Input {
	in := shop()
	in.Config.Kinds = []kinds.Kind{
		{APIVersion: "example.com/v1", Kind: "Widget", Indexes: map[string]string{"byHost": ".spec.hosts[*]", "byPort": ".spec.port", "byAll": ".spec", "byDeep": ".spec.hosts[0].deep.er"}},
		{APIVersion: "example.com/v1", Kind: "Gadget"},
		{APIVersion: "v1", Kind: "ConfigMap"},
	}
	ingresses := in.Objects
	in.Objects = func() []render.Object { return append(ingresses(), widgets...) }
	return in
}

const widgetGVK = `"example.com/v1/Widget"`

// file returns what a template for an additional file writes.
func file(t *testing.T, in render.Input, text string) (string, []render.Fault) {
	t.Helper()
	a, faults := set(t, map[string]string{"files/out.txt": text}).Render(in)
	if len(faults) > 0 {
		return "", faults
	}
	return content(t, a, "files/out.txt"), nil
}

// Templates read objects and write their content.
func TestContent(t *testing.T) {
	t.Parallel()
	in := withWidgets(
		widget("b", map[string]any{
			"hosts": []any{"b.example", "both.example", "both.example"}, "port": int64(8080), "on": true, "off": false, "ratio": 1000000.0, "share": 0.25, "large": float64(math.MaxInt64),
			"text": "x", "none": nil, "a.b/c": "odd",
		}),
		widget("a", map[string]any{"hosts": []any{"both.example", int64(1)}, "port": int64(80)}),
	)
	for text, want := range map[string]string{
		`{{range .Objects ` + widgetGVK + `}}{{.Object.Name}} {{end}}`:                                                                                                         "a b ",
		`{{range .Objects "example.com/v1/Gadget"}}{{.Object.Name}}{{else}}none{{end}}`:                                                                                        "none",
		`{{range .Objects ` + widgetGVK + `}}{{.Content.spec.port}} {{end}}`:                                                                                                   "80 8080 ",
		`{{range .Indexed ` + widgetGVK + ` "byHost" "both.example"}}{{.Object.Name}} {{end}}`:                                                                                 "a b ",
		`{{range .Indexed ` + widgetGVK + ` "byHost" "b.example"}}{{.Object.Name}} {{end}}`:                                                                                    "b ",
		`{{range .Indexed ` + widgetGVK + ` "byHost" 1}}{{.Object.Name}} {{end}}`:                                                                                              "a ",
		`{{range .Indexed ` + widgetGVK + ` "byPort" 8080}}{{.Object.Name}} {{end}}`:                                                                                           "b ",
		`{{range .Indexed ` + widgetGVK + ` "byPort" "8080"}}{{.Object.Name}} {{end}}`:                                                                                         "b ",
		`{{range .Indexed ` + widgetGVK + ` "byPort" 1}}{{.Object.Name}}{{else}}none{{end}}`:                                                                                   "none",
		`{{range .Indexed ` + widgetGVK + ` "byAll" "x"}}{{.Object.Name}}{{else}}none{{end}}`:                                                                                  "none",
		`{{range .Indexed ` + widgetGVK + ` "byDeep" "x"}}{{.Object.Name}}{{else}}none{{end}}`:                                                                                 "none",
		`{{range .Objects ` + widgetGVK + `}}{{with .Field "spec.text"}}{{.}}{{else}}-{{end}}{{end}}`:                                                                          "-x",
		`{{range .Objects ` + widgetGVK + `}}{{.Field "spec.text" | default "-"}}{{end}}`:                                                                                      "-x",
		`{{range .Objects ` + widgetGVK + `}}{{dig "spec" "text" "-" .Content}}{{end}}`:                                                                                        "-x",
		`{{range .Objects ` + widgetGVK + `}}{{.Field "spec['a.b/c']" | default "-"}}{{end}}`:                                                                                  "-odd",
		`{{range .Objects ` + widgetGVK + `}}{{.Field "spec.text.deeper" | default "-"}}{{end}}`:                                                                               "--",
		`{{with index (.Objects ` + widgetGVK + `) 1}}{{with .Content.spec}}{{.on}} {{.off}} {{.ratio}} {{.share}} {{.large}}{{end}}{{end}}`:                                   "true false 1000000 0.25 9223372036854776000",
		`{{with index (.Objects ` + widgetGVK + `) 1}}{{print .Content.spec.ratio}} {{printf "%v %.1f %d" .Content.spec.ratio .Content.spec.ratio .Content.spec.port}}{{end}}`: "1000000 1000000 1000000.0 8080",
		`{{with index (.Objects ` + widgetGVK + `) 1}}{{if and .Content.spec.on (eq .Content.spec.port 8080)}}yes{{end}}{{end}}`:                                               "yes",
		`{{range (index (.Objects ` + widgetGVK + `) 1).Content.spec.hosts}}{{.}} {{end}}`:                                                                                     "b.example both.example both.example ",
		`{{range $k, $v := (index (.Objects ` + widgetGVK + `) 0).Content.spec}}{{$k}} {{end}}`:                                                                                "hosts port ",
		`{{len (.Objects "networking.k8s.io/v1/Ingress")}}{{len (.Objects "v1/Service")}}`:                                                                                     "20",
	} {
		got, faults := file(t, in, text)
		if len(faults) > 0 || strings.TrimSuffix(got, "\n") != want {
			t.Errorf("%s\ngot  %q %+v\nwant %q", text, got, faults, want)
		}
	}
}

// A mistake of a template is reported whatever the objects are, with a hint.
func TestMistakesAboutObjects(t *testing.T) {
	t.Parallel()
	const there = "list it in kinds of the configuration; there are example.com/v1/Gadget, example.com/v1/Widget, networking.k8s.io/v1/Ingress, v1/ConfigMap, v1/Service"
	for text, want := range map[string][2]string{
		`{{range .Objects "example.com/v1/Wigdet"}}{{end}}`:                    {`"example.com/v1/Wigdet" is not a kind that templates can read`, there},
		`{{range .Indexed "example.com/v1/Wigdet" "byHost" "x"}}{{end}}`:       {`"example.com/v1/Wigdet" is not a kind that templates can read`, there},
		`{{range .Objects "v1/Secret"}}{{end}}`:                                {`"v1/Secret" is not a kind that templates can read`, "templates cannot read Secrets: use the function secret for a value"},
		`{{range .Indexed ` + widgetGVK + ` "byName" "x"}}{{end}}`:             {`there is no index "byName" of that kind`, "list it in indexes of the kind; there are: byAll, byDeep, byHost, byPort"},
		`{{range .Indexed "v1/Service" "byName" "x"}}{{end}}`:                  {`there is no index "byName" of that kind`, "list it in indexes of the kind; there are: "},
		`{{range .Objects "networking.k8s.io/v1/Ingress"}}{{.Content}}{{end}}`: {"there is no content of kind networking.k8s.io/v1/Ingress", "list it in kinds of the configuration"},
		`{{range .Objects ` + widgetGVK + `}}{{.Field "spec[0]"}}{{end}}`:      {`field: "spec[0]" is not the path of a field`, "use a path such as spec.timeout"},
		`{{range .Indexed ` + widgetGVK + ` "byHost" (list "x")}}{{end}}`:      {"a value of type []interface {} is not text, a number or a boolean", ""},
	} {
		_, faults := file(t, withWidgets(widget("a", nil)), text)
		if len(faults) != 1 || faults[0].Refused || faults[0].Origin.Template != "mine/files/out.txt" {
			t.Errorf("%s: %+v", text, faults)
			continue
		}
		if diff := cmp.Diff(want, [2]string{faults[0].Message, faults[0].Hint}); diff != "" {
			t.Errorf("%s\n%s", text, diff)
		}
	}
}

// All objects for which a template fails are found at once, each with its fault. Others are not reported.
func TestFaultsOfObjects(t *testing.T) {
	t.Parallel()
	in := withWidgets(
		widget("good", map[string]any{"host": "a.example", "tls": map[string]any{"secret": "x"}}),
		widget("hostless", map[string]any{"tls": map[string]any{"secret": "x"}}),
		widget("bare", map[string]any{"host": "b.example"}),
		widget("line", map[string]any{"host": "a\nuse_backend evil", "tls": map[string]any{"secret": "x"}}),
		widget("brace", map[string]any{"host": "a } or { always_true", "tls": map[string]any{"secret": "x"}}),
		widget("list", map[string]any{"host": []any{"a"}, "tls": map[string]any{"secret": "x"}}),
		widget("null", map[string]any{"host": nil, "tls": map[string]any{"secret": "x"}}),
	)
	_, faults := set(t, map[string]string{
		"haproxy/70-widgets.cfg": "backend widgets\n    # all\n{{- range .Objects " + widgetGVK + "}}\n    use-server x if { req.hdr(host) -m str {{.Content.spec.host}} } # {{.Content.spec.tls.secret}}\n{{- end}}\n",
	}).Render(in)
	var got []string
	for _, f := range faults {
		got = append(got, describe(f.Origin)+": "+f.Message+" ["+f.Field+"]")
	}
	const at = "mine/haproxy/70-widgets.cfg:4 Widget shop/"
	want := []string{
		at + "bare: spec.tls is missing [spec.tls]",
		at + `brace: value "a } or { always_true" holds a space, which is not a part of a word []`,
		at + "hostless: spec.host is missing [spec.host]",
		at + `line: value "a\nuse_backend evil" holds the unprintable character U+000A []`,
		at + "list: a value of type []interface {} is not text, a number or a boolean []",
		at + "null: nothing is not text, a number or a boolean []",
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}

// Every line that is written for an object has it as its origin.
func TestLinesOfObjects(t *testing.T) {
	t.Parallel()
	in := withWidgets(widget("b", map[string]any{"hosts": []any{"b.example", "c.example"}}), widget("a", map[string]any{"hosts": []any{"a.example"}}))
	a, faults := set(t, map[string]string{
		"maps/widgets.map": "# all\n{{range .Objects " + widgetGVK + "}}{{$name := .Object.Name}}{{range .Content.spec.hosts}}{{.}} {{$name}}\n{{end}}{{end}}" +
			"{{range .Indexed " + widgetGVK + " \"byHost\" \"b.example\"}}indexed {{.Object.Name}}\n{{end}}",
	}).Render(in)
	if len(faults) > 0 {
		t.Fatal(faults)
	}
	var got []string
	for i, line := range strings.Split(strings.TrimSpace(content(t, a, "maps/widgets.map")), "\n") {
		got = append(got, line+": "+describe(a.Origin("maps/widgets.map", i+1)))
	}
	const at = "mine/maps/widgets.map:"
	want := []string{
		"# all: " + at + "1", "a.example a: " + at + "2 Widget shop/a", "b.example b: " + at + "2 Widget shop/b", "c.example b: " + at + "2 Widget shop/b",
		"indexed b: " + at + "3 Widget shop/b",
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}

// Of a kind that is read anyway, the objects that the configuration selects have content. Of the others,
// templates know the annotations.
func TestContentOfIngresses(t *testing.T) {
	t.Parallel()
	in := shop()
	in.Config.Kinds = []kinds.Kind{{APIVersion: "networking.k8s.io/v1", Kind: "Ingress"}}
	ingresses := in.Objects
	web := ingresses()[0]
	web.Whole, web.Annotations = map[string]any{"spec": map[string]any{"ingressClassName": "edge"}}, nil // as if they were dropped
	in.Objects = func() []render.Object { return append(ingresses(), web) }
	a, faults := set(t, map[string]string{
		"files/out.txt":      `{{range .Objects "networking.k8s.io/v1/Ingress"}}{{.Object.Name}} {{.Content.spec.ingressClassName}}{{end}}`,
		"extend/backend.cfg": "    # t {{.Annotation \"t\"}}\n",
	}).Render(in)
	if len(faults) > 0 {
		t.Fatal(faults)
	}
	if got := content(t, a, "files/out.txt"); got != "web edge\n" && got != "web edge" {
		t.Errorf("got %q", got)
	}
	if cfg := content(t, a, "haproxy.cfg"); !strings.Contains(cfg, "# t 5s") || !strings.Contains(cfg, "# t 9s") {
		t.Error("an annotation is not known")
	}
}

// The shipped templates read no object, so objects need not be described and sorted.
func TestShippedTemplatesAskForNoObjects(t *testing.T) {
	t.Parallel()
	in := shop()
	in.Objects = func() []render.Object {
		t.Error("a shipped template asked for the objects")
		return nil
	}
	if _, faults := set(t, nil).Render(in); len(faults) > 0 {
		t.Fatal(faults)
	}
}
