package layout_test

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/hapsnap/hapsnap/compiler/diag"
	"github.com/hapsnap/hapsnap/compiler/gateway/layout"
	"github.com/hapsnap/hapsnap/compiler/routing"
)

// laidOut returns the entries and bytes of the lists of all hosts.
func laidOut(listeners []layout.Listener) (out layout.Size) {
	hosts, _ := layout.Hosts("shop/web:80", routing.AsSent, listeners)
	for _, h := range hosts {
		for _, r := range h.Routes {
			out.Routes++
			out.Bytes += len(h.Name) + layout.Match{PathMatch: r.Match.PathMatch, Conditions: r.Match.Conditions}.Bytes()
		}
	}
	return out
}

func without(listeners []layout.Listener, left []layout.LeftOut) []layout.Listener {
	out := slices.Clone(listeners)
	for i := range out {
		out[i].Matches = slices.DeleteFunc(slices.Clone(out[i].Matches), func(m layout.Match) bool {
			return slices.ContainsFunc(left, func(l layout.LeftOut) bool { return l.Route == m.Origin.Object })
		})
	}
	return out
}

// Whatever the routes are, the rest fits into the limits of three namespaces. If the routes are far below the
// limit of one namespace, none is left out.
func TestCrowdBoundsWhatIsLaidOut(t *testing.T) {
	t.Parallel()
	some := 0
	for seed := range uint64(3000) {
		g := generator{rand.New(rand.NewPCG(seed, 5))}
		listeners := g.listeners()
		for _, l := range listeners {
			for i := range l.Matches {
				m := &l.Matches[i]
				n := m.Rank.Name[len(m.Rank.Name)-1]
				m.Rank.Namespace, m.Rank.Created = string('a'+n%3), time.Unix(int64(n%2), 0)
				m.Origin.Object = diag.Object{Kind: "HTTPRoute", Namespace: m.Rank.Namespace, Name: m.Rank.Name}
			}
		}
		most := layout.Size{Routes: 1 + g.IntN(20), Bytes: 50 + g.IntN(500)}
		before := laidOut(listeners)
		left := layout.Crowd([][]layout.Listener{listeners}, most)
		if again := layout.Crowd([][]layout.Listener{listeners}, most); !slices.Equal(again, left) {
			t.Errorf("seed %d: %v are left out, and then %v", seed, left, again)
		}
		after := laidOut(without(listeners, left))
		if after.Routes > 3*most.Routes || after.Bytes > 3*most.Bytes {
			t.Errorf("seed %d: %+v of %+v are more than %+v", seed, after, before, most)
		}
		if len(left) == 0 && (before.Routes > 3*most.Routes || before.Bytes > 3*most.Bytes) {
			t.Errorf("seed %d: nothing is left out of %+v", seed, before)
		}
		if more := layout.Crowd([][]layout.Listener{listeners}, layout.Size{Routes: 2*before.Routes + 100, Bytes: 2*before.Bytes + 2000}); len(more) > 0 {
			t.Errorf("seed %d: %v are left out of %+v", seed, more, before)
		}
		if len(left) > 0 {
			some++
		}
	}
	if some < 500 {
		t.Errorf("only %d worlds are above the limit", some)
	}
}

// crowded has an old namespace's route for a wildcard host, and a young route of hosts with conditional
// matches.
func crowded(keys, hosts int, whole bool) []layout.Listener {
	l := layout.Listener{}
	add := func(namespace, name, host, path string, age int, conditions ...routing.Condition) {
		l.Matches = append(l.Matches, layout.Match{
			Host: host, PathMatch: routing.PathMatch{Type: routing.Prefix, Path: path}, Conditions: conditions, Backend: "b",
			Rank:   layout.Rank{Created: time.Unix(int64(1000-age), 0), Namespace: namespace, Name: name},
			Origin: routing.Origin{Object: diag.Object{Kind: "HTTPRoute", Namespace: namespace, Name: name}},
		})
	}
	for n := range keys {
		add("good", "wildcard", ".example", fmt.Sprint("/p", n), 900)
	}
	for n := range hosts {
		host := fmt.Sprintf("h%d.example", n)
		add("evil", fmt.Sprintf("h%03d", n), host, "", 800-n, routing.Condition{Of: routing.Header, Name: "x", Value: "a"})
		if whole {
			add("evil", "z", host, "", 0)
		}
	}
	return []layout.Listener{l}
}

// A host that has only conditional matches also gets the paths of the wildcard host. They count for the
// namespace of the younger route.
func TestCrowdLeavesOutTheYoungest(t *testing.T) {
	t.Parallel()
	left := layout.Crowd([][]layout.Listener{crowded(100, 50, false)}, layout.Size{Routes: 2000})
	// Each host has its own entry, and two for each of 100 paths.
	if len(left) != 50-9 || left[0].Route.Name != "h009" || left[0].Bytes {
		t.Errorf("%d: %v", len(left), left)
	}
	if left := layout.Crowd([][]layout.Listener{crowded(100, 50, false)}, layout.Size{Bytes: 20_000}); len(left) == 0 || !left[0].Bytes || left[0].Route.Namespace != "evil" {
		t.Error(left)
	}
	// If a younger route takes all requests of the hosts, they need no paths of others.
	if left := layout.Crowd([][]layout.Listener{crowded(100, 50, true)}, layout.Size{Routes: 150}); len(left) > 0 {
		t.Error(left)
	}
}
