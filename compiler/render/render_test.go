package render_test

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/hapsnap/hapsnap/compiler/config"
	"github.com/hapsnap/hapsnap/compiler/diag"
	"github.com/hapsnap/hapsnap/compiler/render"
	"github.com/hapsnap/hapsnap/compiler/routing"
	"github.com/hapsnap/hapsnap/snapshots"
	"github.com/hapsnap/hapsnap/templates"
)

func origin(name string, line int) routing.Origin {
	return routing.Origin{
		Object:   diag.Object{Kind: "Ingress", Namespace: "shop", Name: name},
		Position: diag.Position{File: "m.yaml", Line: line, Column: 1},
	}
}

// shop is a small input: one host, two backends, a certificate.
func shop() render.Input {
	web, api := origin("web", 1), origin("api", 20)
	return render.Input{
		Config: config.Default(),
		Model: routing.Model{
			Hosts: []routing.Host{{Name: "shop.example", Routes: []routing.Route{
				{Match: routing.Match{PathMatch: routing.PathMatch{Type: routing.Prefix, Path: ""}}, Backend: "shop_web_http", Origin: web},
				{Match: routing.Match{PathMatch: routing.PathMatch{Type: routing.Exact, Path: "/api"}}, Backend: "shop_api_80", Origin: api},
			}}},
			Backends: []routing.Backend{
				{Name: "shop_api_80", Origins: []routing.Origin{api}, Targets: []routing.Target{
					{Service: snapshots.ServicePort{Namespace: "shop", Service: "api"}, Weight: 90},
					{Service: snapshots.ServicePort{Namespace: "shop", Service: "api-next"}, Weight: 10},
				}},
				{Name: "shop_web_http", Origins: []routing.Origin{web}, Targets: []routing.Target{
					{Service: snapshots.ServicePort{Namespace: "shop", Service: "web", Port: "http"}, Weight: 1},
				}},
			},
			Certificates: []routing.Certificate{{
				File: "certs/shop_web-tls.pem", Secret: snapshots.SecretName{Namespace: "shop", Name: "web-tls"},
				Hosts: []string{"*.shop.example", "shop.example"}, Origin: web,
			}},
		},
		Objects: func() []render.Object {
			return []render.Object{
				{Origin: web, APIVersion: "networking.k8s.io/v1", Annotations: map[string]string{"t": "5s", "text": "it's a $HOME", "bad": "a b"}},
				{Origin: api, APIVersion: "networking.k8s.io/v1", Annotations: map[string]string{"nl": "a\nb", "t": "9s"}},
			}
		},
	}
}

// set returns the shipped templates with an overlay.
func set(t *testing.T, overlay map[string]string) *render.Set {
	t.Helper()
	s, ds := parse(t, overlay)
	if len(ds) > 0 {
		t.Fatal(ds)
	}
	return s
}

func parse(t *testing.T, overlay map[string]string) (*render.Set, []diag.Diagnostic) {
	t.Helper()
	shipped, err := render.Shipped(templates.FS)
	if err != nil {
		t.Fatal(err)
	}
	var files render.Templates
	for name, text := range overlay {
		files = append(files, render.Template{Name: name, Path: "mine/" + name, Text: text})
	}
	return render.Parse(shipped.Under(files))
}

func rendered(t *testing.T, overlay map[string]string) (render.Artifact, []render.Fault) {
	t.Helper()
	return set(t, overlay).Render(shop())
}

func content(t *testing.T, a render.Artifact, path string) string {
	t.Helper()
	for _, f := range a.Files {
		if f.Path == path {
			return string(f.Content)
		}
	}
	t.Fatalf("no file %s", path)
	return ""
}

func TestEveryLineHasItsOrigin(t *testing.T) {
	t.Parallel()
	a, faults := rendered(t, nil)
	if len(faults) > 0 {
		t.Fatal(faults)
	}
	for _, c := range []struct{ path, line, want string }{
		{"haproxy.cfg", "    mode http", "shipped:haproxy/20-defaults.cfg:5"},
		{"haproxy.cfg", "    timeout tunnel 1h", "shipped:haproxy/20-defaults.cfg:29"},
		{"haproxy.cfg", "backend shop_web_http from main", "shipped:haproxy/50-backend.cfg:2 Ingress shop/web"},
		{"haproxy.cfg", "    #hapsnap servers shop/api-next weight=10", "shipped:haproxy/50-backend.cfg:18 Ingress shop/api"},
		{"haproxy.cfg", "    #hapsnap servers shop/web:http", "shipped:haproxy/50-backend.cfg:18 Ingress shop/web"},
		{"maps/host.map", "shop.example shop.example", "shipped:maps/host.map:2 Ingress shop/web Ingress shop/api"},
		{"maps/exact.map", "shop.example|/api shop_api_80", "shipped:maps/exact.map:2 Ingress shop/api"},
		{"maps/prefix.map", "shop.example|/ shop_web_http", "shipped:maps/prefix.map:2 Ingress shop/web"},
		{"files/https.crtlist", "certs/fallback.pem !*", "shipped:files/https.crtlist:5"},
		{"files/https.crtlist", "certs/shop_web-tls.pem *.shop.example shop.example", "shipped:files/https.crtlist:6 Ingress shop/web"},
	} {
		lines := strings.Split(content(t, a, c.path), "\n")
		found := false
		for i, line := range lines {
			if line == c.line {
				found = true
				if got := describe(a.Origin(c.path, i+1)); got != c.want {
					t.Errorf("%s: %q is of %s, want %s", c.path, line, got, c.want)
				}
			}
		}
		if !found {
			t.Errorf("%s has no line %q:\n%s", c.path, c.line, content(t, a, c.path))
		}
	}
	for _, f := range a.Files {
		if got, want := len(a.Origins[f.Path]), strings.Count(string(f.Content), "\n"); got != want {
			t.Errorf("%s: %d origins for %d lines", f.Path, got, want)
		}
	}
}

func describe(o render.LineOrigin) string {
	parts := []string{diag.Position{File: o.Template, Line: o.Line}.String()}
	for _, object := range o.Objects {
		parts = append(parts, object.Object.String())
	}
	return strings.Join(parts, " ")
}

func TestOverlay(t *testing.T) {
	t.Parallel()
	a, faults := rendered(t, map[string]string{
		"haproxy/60-status.cfg":   "",
		"haproxy/55-extra.cfg":    "listen extra\n    bind *:9\n",
		"extend/backend.cfg":      "{{- with .Annotation \"t\"}}\n    timeout server {{.}}\n{{- end}}",
		"maps/mine.map":           "{{range .Objects \"networking.k8s.io/v1/Ingress\"}}{{.Object.Name}} {{index .Annotations \"t\"}}\n{{end}}",
		"maps/none.map":           "{{/* nothing */}}",
		"haproxy/57-per-host.cfg": "{{/* each host */ -}}\nbackend host_{{.Host.Name}}\n",
	})
	if len(faults) > 0 {
		t.Fatal(faults)
	}
	cfg := content(t, a, "haproxy.cfg")
	for _, want := range []string{
		"\nlisten extra\n    bind *:9\n\nbackend host_shop.example\n",
		"backend shop_web_http from main\n    timeout server 5s\n    #hapsnap servers shop/web:http\n",
		"backend shop_api_80 from main\n    timeout server 9s\n",
	} {
		if !strings.Contains(cfg, want) {
			t.Errorf("haproxy.cfg lacks %q:\n%s", want, cfg)
		}
	}
	if strings.Contains(cfg, "frontend status") || strings.Contains(cfg, "\n\n\n") {
		t.Errorf("haproxy.cfg has a section that was overlaid, or several blank lines:\n%s", cfg)
	}
	if got := content(t, a, "maps/mine.map"); got != "api 9s\nweb 5s\n" {
		t.Errorf("maps/mine.map is %q", got)
	}
	if got := content(t, a, "maps/none.map"); got != "# empty\n" {
		t.Errorf("maps/none.map is %q", got)
	}
}

func TestValuesAreChecked(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct{ template, want string }{
		"plain":      {`{{.Annotation "t"}}`, "= 5s"},
		"number":     {`{{add 1 2}} {{eq 1 1}}`, "= 3 true"},
		"literal":    {`{{"a b"}}`, `value "a b" holds a space, which is not a part of a word`},
		"space":      {`{{.Annotation "bad"}}`, `value "a b" holds a space, which is not a part of a word`},
		"line break": {`{{"a\nb"}}`, `value "a\nb" holds the unprintable character U+000A`},
		"NUL":        {`{{"a\x00b" | quote}}`, `value "a\x00b" holds the unprintable character U+0000`},
		"separator":  {`{{"a\u2028b"}}`, `value "a\u2028b" holds the unprintable character U+2028`},
		"no UTF-8":   {`{{"a\xffb"}}`, `value "a\xffb" is not valid UTF-8`},
		"comment":    {`{{"a#b"}}`, `value "a#b" holds '#', which is not a part of a word`},
		"variable":   {`{{"${HOME}"}}`, `value "${HOME}" holds '$', which HAProxy expands within quotes`},
		"backslash":  {`{{"a\\b"}}`, `value "a\\b" holds a backslash, which is not a part of a word`},
		"quoted":     {`{{.Annotation "text" | quote}}`, `= 'it'\''s a $HOME'`},
		"not quoted": {`{{.Annotation "text"}}`, `value "it's a $HOME" holds a single quote, which is not a part of a word`},
		"words":      {`{{list "a" "b" | words}}`, "= a b"},
		"bad word":   {`{{list "a" "b c" | words}}`, `value "b c" holds a space, which is not a part of a word`},
		"undone":     {`{{printf "%s x" (quote "a b")}}`, `value "'a b' x" holds a single quote, which is not a part of a word`},
		"structure":  {`{{.Backend}}`, "a value of type routing.Backend is not text, a number or a boolean"},
		"no field":   {`{{.Backend.Nowhere}}`, "executing \"extend/backend.cfg\" at <.Backend.Nowhere>: can't evaluate field Nowhere in type routing.Backend"},
		"missing":    {`{{(index (.Objects "networking.k8s.io/v1/Ingress") 0).Annotations.none}}`, `executing "extend/backend.cfg" at <0>: map has no entry for key "none"`},
		"variables":  {`{{$x := "a b"}}{{$x = "c"}}{{$x}}`, "= c"},
		"refused":    {`{{fail "no such plan"}}`, "no such plan"},
		"secret":     {`{{secret "shop/keys" "cookie.key"}}`, "= hapsnap:secret/shop/keys/cookie.key"},
		"no secret":  {`{{secret "shop" "key"}}`, `"shop" is not namespace/name`},
		"its key":    {`{{secret "shop/keys" "a b"}}`, `"shop/keys/a b" is not a namespace, a Secret and a key`},
		"not asked":  {`{{"hapsnap:secret/shop/keys/k"}}`, `value "hapsnap:secret/shop/keys/k" holds hapsnap:secret/, which stands for the value of a Secret`},
		"in quotes":  {`{{secret "shop/keys" "k" | quote}}`, `value "hapsnap:secret/shop/keys/k" holds hapsnap:secret/, which stands for the value of a Secret`},
		"in pieces":  {`{{"hapsnap"}}:{{"secret/shop/keys/k"}}`, "the line holds hapsnap:secret/, which stands for the value of a Secret"},
		"in a word":  {`a{{secret "shop/keys" "k"}}`, "the line holds hapsnap:secret/, which stands for the value of a Secret"},
		"sorted":     {`{{range keys (dict "b" 1 "a" 2)}}{{.}}{{end}}{{range values (dict "b" 1 "a" 2)}}{{.}}{{end}}`, "= ab21"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			text := `{{if eq .Backend.Name "shop_web_http"}}x = ` + c.template + "{{end}}"
			a, faults := rendered(t, map[string]string{"extend/backend.cfg": text})
			if len(faults) > 0 {
				if diff := cmp.Diff(c.want, faults[0].Message); diff != "" || len(faults) != 1 {
					t.Errorf("%v\n%s", faults, diff)
				}
				return
			}
			if cfg := content(t, a, "haproxy.cfg"); !strings.Contains(cfg, "x "+c.want+"\n") {
				t.Errorf("no line %q in:\n%s", "x "+c.want, cfg)
			}
		})
	}
}

func TestMapsTakeNoQuotes(t *testing.T) {
	t.Parallel()
	_, faults := rendered(t, map[string]string{"maps/x.map": `{{quote "a b"}} c`})
	if len(faults) != 1 || faults[0].Message != `value "'a b'" is quoted, but maps and crt-lists have no quotes` {
		t.Error(faults)
	}
	_, faults = rendered(t, map[string]string{"maps/x.map": `{{secret "shop/keys" "k"}} c`})
	if len(faults) != 1 || !strings.Contains(faults[0].Message, "stands for the value of a Secret") {
		t.Error(faults)
	}
	a, faults := rendered(t, map[string]string{"maps/x.map": `{{"/$metadata"}} c`, "files/x.html": `<p>{{.Annotation "text"}}{{"a b"}}` + "</p>\n\nend"})
	if len(faults) != 0 || content(t, a, "files/x.html") != "<p>a b</p>\n\nend\n" {
		t.Error(faults)
	}
}

// A fault names the object for which the template ran, and whether one of its values was refused.
func TestFaultsNameTheirObjects(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct{ template, want string }{
		"page":           {`{{if eq .Backend.Name "shop_api_80"}}{{.Annotation "nl"}}{{end}}`, "mine/extend/backend.cfg:1 Ingress shop/api"},
		"range":          {"a\n{{range .Objects \"networking.k8s.io/v1/Ingress\"}}{{if eq .Object.Name \"web\"}}b\n{{index .Annotations \"bad\"}}{{end}}{{end}}", "mine/extend/backend.cfg:3 Ingress shop/web"},
		"after continue": {"{{range .Hosts}}{{range .Routes}}{{continue}}{{end}}{{end}}{{if eq .Backend.Name \"shop_api_80\"}}{{fail \"x\"}}{{end}}", "mine/extend/backend.cfg:1 Ingress shop/api"},
		"after a range":  {"{{range $.Certificates}}{{.File}}{{end}}\n{{if eq .Backend.Name \"shop_api_80\"}}{{fail \"x\"}}{{end}}", "mine/extend/backend.cfg:2 Ingress shop/api"},
		"not the object": {`{{.Nothing}}`, "mine/extend/backend.cfg:1 Ingress shop/api, not refused"},
		"not its value":  {"\n\n{{.Backend}}", "mine/extend/backend.cfg:3 Ingress shop/api, not refused"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			_, faults := rendered(t, map[string]string{"extend/backend.cfg": c.template})
			if len(faults) == 0 {
				t.Fatal("no fault")
			}
			got := describe(faults[0].Origin)
			if !faults[0].Refused {
				got += ", not refused"
			}
			if got != c.want {
				t.Errorf("fault %+v is of %q, want %q", faults[0], got, c.want)
			}
		})
	}
}

func TestParseReportsPlaces(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		overlay map[string]string
		want    string
	}{
		"syntax":        {map[string]string{"haproxy/x.cfg": "a\n{{if}}\n"}, "mine/haproxy/x.cfg:2: missing value for if"},
		"clock":         {map[string]string{"haproxy/x.cfg": "{{now}}"}, `mine/haproxy/x.cfg:1: function "now" not defined`},
		"random":        {map[string]string{"haproxy/x.cfg": "{{randInt 1 2}}"}, `mine/haproxy/x.cfg:1: function "randInt" not defined`},
		"environment":   {map[string]string{"haproxy/x.cfg": `{{env "HOME"}}`}, `mine/haproxy/x.cfg:1: function "env" not defined`},
		"no template":   {map[string]string{"haproxy/x.cfg": "\n\n{{with .Default}}{{template \"partials/none.cfg\" .}}{{end}}"}, `mine/haproxy/x.cfg:3: there is no template "partials/none.cfg"`},
		"each of what":  {map[string]string{"haproxy/x.cfg": "{{- /* each pod */ -}}"}, "mine/haproxy/x.cfg:1:1: each pod is not known\n\thint: use each backend, each host, each certificate, each listener, each bind or each connections"},
		"each in a map": {map[string]string{"maps/x.map": "{{- /* each host */ -}}"}, "mine/maps/x.map:1:1: only templates in haproxy/ can be executed with each\n\thint: use range"},
		"NUL":           {map[string]string{"maps/x.map": "a\n\x00L1,1;"}, "mine/maps/x.map:2: holds a NUL character\n\thint: delete it"},
		"defined twice": {map[string]string{"haproxy/x.cfg": `{{define "a"}}1{{end}}`, "haproxy/y.cfg": `{{define "a"}}2{{end}}`}, "mine/haproxy/y.cfg: defines \"a\", which mine/haproxy/x.cfg defines too\n\thint: rename one of them"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			_, ds := parse(t, c.overlay)
			if len(ds) != 1 {
				t.Fatalf("got %v, want one diagnostic", ds)
			}
			if diff := cmp.Diff(c.want, ds[0].String()); diff != "" {
				t.Error(diff)
			}
		})
	}
}

func TestCertificateReferences(t *testing.T) {
	t.Parallel()
	a, faults := rendered(t, nil)
	want := []snapshots.CertificateRef{
		{File: "certs/fallback.pem"},
		{File: "certs/shop_web-tls.pem", Secret: snapshots.SecretName{Namespace: "shop", Name: "web-tls"}},
	}
	if diff := cmp.Diff(want, a.Certificates); diff != "" || len(faults) > 0 {
		t.Errorf("%v\n%s", faults, diff)
	}
	a, faults = rendered(t, map[string]string{"haproxy/40-frontend-https.cfg": "", "files/https.crtlist": ""})
	if len(a.Certificates) != 0 || len(faults) > 0 {
		t.Errorf("%v: certificates %v that no file names", faults, a.Certificates)
	}
}
