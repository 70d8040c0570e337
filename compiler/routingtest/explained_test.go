package routingtest

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/hapsnap/hapsnap/snapshots"
	"github.com/hapsnap/hapsnap/snapshots/bind"
	"github.com/hapsnap/hapsnap/snapshots/request"
	"github.com/hapsnap/hapsnap/snapshots/routetable"
)

// The explanation of a request names the backend that HAProxy uses, with random rules, canaries, hosts and
// paths.
func TestExplainedRequestsAgreeWithHAProxy(t *testing.T) {
	t.Parallel()
	services := randomServices(t)
	eachSeed(t, seeds, 2, func(g generator) string {
		t := g.t
		ingresses := g.ingresses()
		yaml := all(ingresses) + all(g.canaries(ingresses))
		compareExplained(t, start(t, services+yaml), g, ingresses)
		return yaml
	})
}

func compareExplained(t *testing.T, e edge, g generator, ingresses []ingress) {
	t.Helper()
	files := e.result.Draft.Files
	services := servicesOf(t, files)
	usable := func(backend string) int {
		return len(slices.DeleteFunc(slices.Clone(services[backend]), func(name string) bool { return name == "empty" }))
	}
	clients := []*client{{address: e.http}, {address: e.https, secure: true}}
	reached, lines, inTable := map[string]int{}, 0, listed(t, files)
	for n := range requestsPerSeed {
		c, host, target, said := clients[n%2], g.host(), g.target(ingresses), g.pick("always", "never", "else")
		port, err := strconv.Atoi(c.address[strings.LastIndexByte(c.address, ':')+1:])
		if err != nil {
			t.Fatal(err)
		}
		a, err := request.Led(files, request.Request{
			TLS: c.secure, Port: port, Method: "GET", Host: host, Target: target, Headers: map[string][]string{"X-Canary": {said}},
		}, usable)
		if err != nil {
			t.Fatal(err)
		}
		inTable(a)
		got := c.ask(t, host, target, "X-Canary: "+said+"\r\n")
		reached[got]++
		lines += len(a.Lines)
		if want := answererOf(a, services, usable); got != want {
			t.Errorf("Host %q, target %q, X-Canary %s, TLS %v: %s answered, the explanation says %s: %+v", host, target, said, c.secure, got, want, a)
		}
		if len(a.Unsure) > 0 {
			t.Errorf("Host %q, target %q: the explanation is not sure of %v", host, target, a.Unsure)
		}
	}
	if len(reached) < 5 || lines < requestsPerSeed {
		t.Errorf("the requests say little: %v, %d lines of maps", reached, lines)
	}
}

// listed returns a check that the table of all routes has a route to the backend of an explanation.
func listed(t *testing.T, files []snapshots.File) func(request.Answer) {
	t.Helper()
	table, err := routetable.Of(snapshots.Snapshot{Files: files})
	if err != nil || table.Unread > 0 {
		t.Fatalf("%v; %d lines not read", err, table.Unread)
	}
	return func(a request.Answer) {
		t.Helper()
		if a.Backend == "" {
			return
		}
		for _, r := range table.Routes {
			leads := slices.ContainsFunc(r.Shares, func(s routetable.Share) bool { return s.Backend.Name == a.Backend })
			if leads && (r.Kind == routetable.Regex || r.Kind == routetable.Default || slices.ContainsFunc(a.Lines, func(l request.Line) bool { return l.File == r.File && l.Line == r.Line })) {
				return
			}
		}
		t.Errorf("no route of the table leads to backend %s by a line of %+v", a.Backend, a.Lines)
	}
}

// servicesOf returns the names of the Services of each backend, without those that get no requests.
func servicesOf(t *testing.T, files []snapshots.File) map[string][]string {
	t.Helper()
	directives, err := bind.Directives(snapshots.Snapshot{Files: files}.Config())
	if err != nil {
		t.Fatal(err)
	}
	out := map[string][]string{}
	for _, d := range directives {
		if d.Weight > 0 || !weighted(directives, d.Backend) {
			out[d.Backend] = append(out[d.Backend], d.Service.Service)
		}
	}
	return out
}

// weighted reports whether the Services of a backend share its requests by weight.
func weighted(all []bind.Directive, backend string) bool {
	return slices.ContainsFunc(all, func(d bind.Directive) bool { return d.Backend == backend && d.Index > 0 })
}

// answererOf returns the answer that follows from an explanation, in the form of [answer].
func answererOf(a request.Answer, services map[string][]string, usable func(string) int) string {
	switch {
	case a.Status != 0:
		return fmt.Sprint(a.Status)
	case usable(a.Backend) == 0:
		return "503"
	}
	return services[a.Backend][0]
}
