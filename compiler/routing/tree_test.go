package routing_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/hapsnap/hapsnap/compiler/diag"
	"github.com/hapsnap/hapsnap/compiler/routing"
	"github.com/hapsnap/hapsnap/compiler/routing/modeltest"
)

// twoListeners is a model with two listeners that have one host, each with a path of its own, and a
// third that shares the hosts of the model.
func twoListeners() routing.Model {
	of := func(name string) routing.Origin {
		return routing.Origin{Object: diag.Object{Kind: "Route", Namespace: "shop", Name: name}}
	}
	host := func(path, backend string) routing.Host {
		return routing.Host{Name: "a.example", Origin: of(backend), Routes: []routing.Route{{
			Match: routing.Match{PathMatch: routing.PathMatch{Type: routing.Prefix, Path: path}}, Backend: backend, Origin: of(backend),
		}}}
	}
	return routing.Model{
		Hosts:    []routing.Host{host("", "all")},
		Backends: []routing.Backend{{Name: "all"}, {Name: "inside"}, {Name: "outside"}},
		Listeners: []routing.Listener{
			{Name: "inside", Port: 8080, Protocol: routing.HTTP, Own: &routing.Tree{Hosts: []routing.Host{host("/in", "inside")}}},
			{Name: "outside", Port: 80, Protocol: routing.HTTP, Own: &routing.Tree{Hosts: []routing.Host{host("/out", "outside")}, Default: "outside", DefaultOrigin: of("outside")}},
			{Name: "shared", Port: 81, Protocol: routing.HTTP},
		},
	}
}

// backendsOf returns where requests to a listener may lead.
func backendsOf(m routing.Model, name string) []string {
	i := slices.IndexFunc(m.Listeners, func(l routing.Listener) bool { return l.Name == name })
	if i < 0 {
		return nil
	}
	var out []string
	for _, h := range m.TreeOf(m.Listeners[i]).Hosts {
		for _, r := range h.Routes {
			out = append(out, r.Backend)
		}
	}
	return out
}

// Listeners may have hosts of their own, also one host in several ways.
func TestListenersHaveHosts(t *testing.T) {
	t.Parallel()
	m := twoListeners()
	if err := modeltest.Check(m); err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]string{"inside": "inside", "outside": "outside", "shared": "all"} {
		if got := backendsOf(m, name); len(got) != 1 || got[0] != want {
			t.Errorf("listener %s leads to %v, want %s", name, got, want)
		}
	}
	part := m.Part(diag.Object{Kind: "Route", Namespace: "shop", Name: "outside"}, nil)
	if err := modeltest.Check(part); err != nil {
		t.Error(err)
	}
	if got := backendsOf(part, "outside"); len(got) != 1 || len(part.Hosts) > 0 || len(part.Listeners) != 1 || len(part.Backends) != 1 {
		t.Errorf("the part of one listener's object is %+v", part)
	}
	if _, ok := part.With(m.Part(diag.Object{Kind: "Route", Namespace: "shop", Name: "inside"}, nil)); !ok {
		t.Error("parts of two listeners are not joined")
	}
}

// A model that means nothing is found out.
func TestModelCheck(t *testing.T) {
	t.Parallel()
	for want, change := range map[string]func(*routing.Model){
		`path "/in" of host "a.example" of listener inside leads to the backend inside, which is not there`: func(m *routing.Model) { m.Backends = m.Backends[:1] },
		"the default of listener outside leads to the backend none":                                         func(m *routing.Model) { m.Listeners[1].Own.Default = "none" },
		"listeners are not sorted":                       func(m *routing.Model) { m.Listeners[2].Name = "a" },
		"backends are not sorted, or one is there twice": func(m *routing.Model) { m.Backends[1].Name = "all" },
		"does not look at requests":                      func(m *routing.Model) { m.Listeners[0].Protocol = routing.TCP },
		"is held, and has routes":                        func(m *routing.Model) { m.Listeners[0].Own.Held = []routing.Held{{Name: "a.example"}} },
		"hosts of listener inside are not sorted": func(m *routing.Model) {
			m.Listeners[0].Own.Hosts = append(m.Listeners[0].Own.Hosts, m.Hosts...)
		},
		"listener shared leads to the backend none": func(m *routing.Model) {
			m.Listeners[2].Routes = []routing.ConnectionRoute{{SNI: "x.example", Backend: "none"}}
		},
		"has no route without conditions": func(m *routing.Model) {
			m.Hosts[0].Routes[0].Match.Conditions = []routing.Condition{{Of: routing.Header, Name: "X", Value: "y"}}
		},
	} {
		m := twoListeners()
		change(&m)
		if err := modeltest.Check(m); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %q", err, want)
		}
	}
}
