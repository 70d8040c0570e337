package routingtest

import (
	"fmt"
	"testing"

	"github.com/hapsnap/hapsnap/compiler/config"
	"github.com/hapsnap/hapsnap/compiler/inputs"
	"github.com/hapsnap/hapsnap/compiler/render"
	"github.com/hapsnap/hapsnap/compiler/routing"
	"github.com/hapsnap/hapsnap/snapshots"
	"github.com/hapsnap/hapsnap/templates"
)

// startModel runs a model that no object asked for. Its Services are "a" to "d".
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
	run(t, dir, e.http)
	return e
}

// Of the routes of one path the first one whose conditions hold takes a
// request, whatever the conditions are about.
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
