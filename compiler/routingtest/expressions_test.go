package routingtest

import (
	"fmt"
	"strings"
	"testing"

	"github.com/hapsnap/hapsnap/compiler/config"
	"github.com/hapsnap/hapsnap/compiler/diag"
	"github.com/hapsnap/hapsnap/compiler/inputs"
	"github.com/hapsnap/hapsnap/compiler/render"
	"github.com/hapsnap/hapsnap/compiler/routing"
	"github.com/hapsnap/hapsnap/snapshots"
	"github.com/hapsnap/hapsnap/templates"
)

// Expressions are tried after exact paths and after prefixes, but before shorter prefixes of their own
// namespace. They take no requests from other namespaces.
func TestExpressions(t *testing.T) {
	t.Parallel()
	regex := func(i ingress, more ...string) ingress {
		i.annotations = annotated(append([]string{"path-type-default", "Regex"}, more...)...)
		return i
	}
	services := ""
	for _, name := range []string{"a", "b", "c", "d"} {
		services += serviceYAML("shop", name, mirror(t, name, nil))
	}
	services += serviceYAML("other", "x", mirror(t, "x", nil))
	e := start(t, services+all([]ingress{
		{name: "plain", age: 9, rules: []string{"h.example P / a", "h.example E /v1/exact a", "h.example P /v1/admin a"}},
		regex(ingress{name: "regex", age: 8, rules: []string{
			"h.example I /v[0-9]+/.* b", "h.example I /v[0-9]+/users/[a-z]+$ c", "h.example P /v1/own d", "h.example I /(one|two) d", "h.example I /v1/a(/|$)(.*) d",
		}}),
		regex(ingress{namespace: "other", name: "thief", age: 20, rules: []string{
			"h.example I /(v1|v2|v3|v4|v5|v6|v7|v8|one|two|any)/.* x", "h.example I /.* x", "free.example I /.* x", "same.example I /x.*yyyyyyy x",
		}}),
		regex(ingress{name: "same", age: 8, rules: []string{"same.example I /x.* b"}}),
		regex(ingress{name: "whole", age: 8, rules: []string{"whole.example P / a", "whole.example I /[a-z]+/v1 b"}}),
		regex(ingress{name: "rewritten", age: 8, rules: []string{"re.example I /x/?(.*) a", "re.example I /(y)/(z*)(.*) a", "re.example P /plain a"}}, "rewrite-path", `/to/\1`),
		regex(ingress{name: "wild", age: 8, rules: []string{"*.wild.example I /x(a|b) a"}}),
		regex(ingress{name: "hostless", age: 8, rules: []string{"- I /none/[0-9]+ a"}}),
	}))
	for _, d := range e.result.Diagnostics {
		if d.Severity != diag.Warning || !strings.Contains(d.Message, "gets no request that the prefix") && !strings.Contains(d.Message, "other namespaces have paths") {
			t.Errorf("unexpected: %s", d)
		}
	}
	for _, c := range []struct{ host, path, server, target string }{
		{"h.example", "/", "a", ""}, {"h.example", "/x", "a", ""},
		{"h.example", "/v1/x", "b", ""}, {"h.example", "/V22/x?y=z", "b", ""}, {"h.example", "/v1", "a", ""},
		{"h.example", "/v1/users/joe", "c", ""}, {"h.example", "/v1/users/joe/x", "b", ""},
		{"h.example", "/v1/exact", "a", ""}, {"h.example", "/v1/exact/x", "b", ""},
		{"h.example", "/v1/admin", "a", ""}, {"h.example", "/v1/admin/x", "a", ""}, {"h.example", "/v1/adminx", "b", ""}, {"h.example", "/v1/own/x", "d", ""},
		{"h.example", "/one", "a", ""}, // the prefix / is of another Ingress, and the literal beginning of the expression is not longer
		{"free.example", "/any", "x", ""}, {"same.example", "/xyyyyyyy", "b", ""}, {"same.example", "/nothing", "", ""},
		{"whole.example", "/abc/v1", "b", ""}, {"whole.example", "/abc", "a", ""},
		{"re.example", "/x/foo?q=%20", "a", "/to/foo?q=%20"}, {"re.example", "/X", "a", "/to/"}, {"re.example", "/xyz", "a", "/to/yz"},
		{"re.example", "/y/zz1", "a", "/to/y"}, {"re.example", "/plain/x", "a", "/to/"},
		{"q.wild.example", "/xb", "a", ""}, {"q.wild.example", "/xc", "", ""}, {"unknown.example", "/none/77", "a", ""}, {"unknown.example", "/none/x", "", ""},
	} {
		got := e.get(t, c.host, c.path)
		if got.seen.Name != c.server || c.target != "" && got.seen.Target != c.target || c.server == "" && got.StatusCode != 404 {
			t.Errorf("%s%s: %d by %q, target %q; want %q, %q", c.host, c.path, got.StatusCode, got.seen.Name, got.seen.Target, c.server, c.target)
		}
	}
}

// An expression that cannot be used is left out. If it protects something, everything that it might match is
// closed.
func TestExpressionsThatCannotBeUsed(t *testing.T) {
	t.Parallel()
	services := serviceYAML("shop", "a", mirror(t, "a", nil))
	e := start(t, services+all([]ingress{
		{name: "open", rules: []string{"h.example P / a"}},
		{name: "bad", annotations: annotated("path-type-default", "Regex"), rules: []string{"h.example I /(a+)+x a", "h.example I /good/[0-9] a"}},
		{name: "odd", annotations: annotated("path-type-default", "Regex", "allow-list", "127.0.0.0/8"), rules: []string{`odd.example I /secret/(a\|b) a`, "odd.example I /pri%76ate a"}},
		{name: "closed", annotations: annotated("path-type-default", "Regex", "allow-list", "127.0.0.0/8"), rules: []string{"h.example I /admin/x(?=y) a", "p.example I /(a+)+b a"}},
	}))
	said := 0
	for _, d := range e.result.Diagnostics {
		if d.Severity == diag.Error {
			said++
		}
	}
	for path, want := range map[string]int{"h.example/aaa": 200, "h.example/good/1": 200, "h.example/admin/xy": 503, "h.example/admin/z": 503, "h.example/adm": 200, "p.example/q": 503, "odd.example/secret/a%7Cb": 503, "odd.example/secret/x": 503, "odd.example/private": 503} {
		host, rest, _ := strings.Cut(path, "/")
		if got := e.get(t, host, "/"+rest); got.StatusCode != want {
			t.Errorf("%s: %d, want %d", path, got.StatusCode, want)
		}
	}
	if said != 5 {
		t.Errorf("%d errors: %v", said, e.result.Diagnostics)
	}
}

// startModel runs a model that was not made from objects. Its Services are "a" to "d".
func startModel(t *testing.T, model routing.Model) edge {
	t.Helper()
	files, err := render.Shipped(templates.FS)
	if err != nil {
		t.Fatal(err)
	}
	set, found := render.Parse(files)
	if len(found) > 0 {
		t.Fatal(found)
	}
	cfg := config.Default()
	ip := ownAddress()
	cfg.Bind.Addresses = []string{ip}
	cfg.HTTP.Port, cfg.HTTPS.Port, cfg.Status.Port, cfg.MaxConn = freePort(t, ip), 0, 0, 100
	artifact, faults := set.Render(render.Input{Model: model, Config: cfg})
	if len(faults) > 0 {
		t.Fatal(faults)
	}
	_, objects := compile(t, common(t)+ingress{rules: []string{"- P / a"}}.yaml(), config.Default())
	dir := t.TempDir()
	write(t, dir, bindDraft(t, dir, snapshots.Draft{Files: artifact.Files}, inputs.Inputs{EndpointSlices: objects.EndpointSlices}))
	e := edge{http: fmt.Sprint(ip, ":", cfg.HTTP.Port)}
	run(t, dir)
	return e
}

// Of several routes with one path, the first whose conditions hold gets the request, whatever the kind of
// condition.
func TestConditions(t *testing.T) {
	t.Parallel()
	host := routing.Host{Name: "h.example"}
	route := func(backend string, conditions ...routing.Condition) {
		host.Routes = append(host.Routes, routing.Route{
			Match:   routing.Match{PathMatch: routing.PathMatch{Type: routing.Prefix, Path: "/x"}, Conditions: conditions},
			Backend: backend,
		})
	}
	post := routing.Condition{Of: routing.Method, Value: "POST"}
	blue := routing.Condition{Of: routing.Query, Name: "color", Value: "light blue"}
	header := routing.Condition{Of: routing.Header, Name: "X-A", Value: "-f it's, 100%"}
	cookie := routing.Condition{Of: routing.Cookie, Name: "c", Value: "1"}
	route("b", post, blue)
	route("c", blue)
	route("d", header, cookie)
	route("b", header)
	route("a")
	model := routing.Model{Hosts: []routing.Host{host}}
	for _, name := range []string{"a", "b", "c", "d"} {
		target := routing.Target{Service: snapshots.ServicePort{Namespace: "shop", Service: name}, Weight: 1}
		model.Backends = append(model.Backends, routing.Backend{Name: name, Targets: []routing.Target{target}})
	}
	e := startModel(t, model)
	const value = "X-A: -f it's, 100%\r\n"
	for _, c := range []struct{ method, target, lines, want string }{
		{"GET", "/x", "", "a"},
		{"POST", "/x", "", "a"},
		{"GET", "/x?color=blue", "", "a"},
		{"GET", "/x/y?a=b&color=light+blue", "", "c"},
		{"POST", "/x?color=light%20blue", "", "b"},
		{"GET", "/x?COLOR=light%20blue", "", "a"},
		{"GET", "/x", value, "b"},
		{"GET", "/x", "X-A: another\r\n" + value, "b"},
		{"GET", "/x", value + "Cookie: c=1\r\n", "d"},
		{"GET", "/x", value + "Cookie: c=2\r\n", "b"},
		{"GET", "/x", "X-A: -f it's, 100%%\r\n", "a"},
		{"GET", "/x", "X-A: -f it's\r\n", "a"},
		{"POST", "/y?color=light+blue", value, "404"},
	} {
		request := fmt.Sprintf("%s %s HTTP/1.1\r\nHost: h.example\r\nContent-Length: 0\r\nConnection: close\r\n%s\r\n", c.method, c.target, c.lines)
		if got := raw(t, e.http, request); got != c.want {
			t.Errorf("%s %s %q: %s, want %s", c.method, c.target, c.lines, got, c.want)
		}
	}
}
