package layout_test

import (
	"cmp"
	"fmt"
	"math/rand/v2"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/hapsnap/hapsnap/compiler/gateway/layout"
	"github.com/hapsnap/hapsnap/compiler/routing"
	"github.com/hapsnap/hapsnap/compiler/routing/modeltest"
)

// request is what matches look at.
type request struct{ host, path, method, header, query string }

func (r request) part(of routing.Part) string {
	switch of {
	case routing.Method:
		return r.method
	case routing.Header, routing.HeaderPattern:
		return r.header
	case routing.PathPattern:
		return r.path
	}
	return r.query
}

func (r request) meets(conditions []routing.Condition) bool {
	return !slices.ContainsFunc(conditions, func(c routing.Condition) bool {
		if c.Of == routing.HeaderPattern || c.Of == routing.PathPattern {
			return !regexp.MustCompile(c.Value).MatchString(r.part(c.Of))
		}
		return c.Value != r.part(c.Of)
	})
}

// Hosts route as the specification ranks matches. This implementation compares each match with the request, and
// the best one wins.
func TestHostsAgreeWithRanks(t *testing.T) {
	t.Parallel()
	for seed := range uint64(3000) {
		g := generator{rand.New(rand.NewPCG(seed, 3))}
		listeners := g.listeners()
		hosts, over := layout.Hosts("shop/web:80", routing.AsSent, listeners)
		if len(over) > 0 {
			t.Fatal(over)
		}
		var backends []routing.Backend
		for _, h := range hosts {
			for _, r := range h.Routes {
				backends = append(backends, routing.Backend{Name: r.Backend})
			}
		}
		slices.SortFunc(backends, func(a, b routing.Backend) int { return cmp.Compare(a.Name, b.Name) })
		backends = slices.CompactFunc(backends, func(a, b routing.Backend) bool { return a.Name == b.Name })
		if err := modeltest.Check(routing.Model{Binds: []routing.Bind{{Name: "shop/web:80"}}, Hosts: hosts, Backends: backends}); err != nil {
			t.Fatal(seed, err)
		}
		for range 40 {
			r := g.request()
			if got, want := routed(hosts, r), ranked(listeners, r); got != want {
				t.Fatalf("seed %d, %+v: %q, want %q\n%+v\n%+v", seed, r, got, want, listeners, hosts)
			}
		}
	}
}

// ranked applies the specification: first the listener, then the most specific host, then the rank of matches.
func ranked(listeners []layout.Listener, r request) string {
	best := -1
	for i, l := range listeners {
		if covers(l.Host, r.host) && (best < 0 || specific(l.Host) > specific(listeners[best].Host)) {
			best = i
		}
	}
	if best < 0 {
		return ""
	}
	var all []layout.Match
	for _, m := range listeners[best].Matches {
		if covers(m.Host, r.host) && r.meets(m.Conditions) && takesPath(m.PathMatch, r.path) {
			all = append(all, m)
		}
	}
	if len(all) == 0 {
		return ""
	}
	count := func(m layout.Match, of ...routing.Part) (n int) {
		for _, c := range m.Conditions {
			if slices.Contains(of, c.Of) {
				n++
			}
		}
		return -n
	}
	slices.SortFunc(all, func(a, b layout.Match) int {
		kind := func(m layout.Match) int {
			if m.Type == routing.Exact {
				return 0
			}
			return 2 + count(m, routing.PathPattern)
		}
		return cmp.Or(specific(b.Of)-specific(a.Of), kind(a)-kind(b), len(b.Path)-len(a.Path), count(a, routing.Method)-count(b, routing.Method),
			count(a, routing.Header, routing.HeaderPattern)-count(b, routing.Header, routing.HeaderPattern), count(a, routing.Query)-count(b, routing.Query),
			a.Rank.Created.Compare(b.Rank.Created), cmp.Compare(a.Rank.Name, b.Rank.Name), a.Rank.Rule-b.Rank.Rule)
	})
	return all[0].Backend
}

func covers(pattern, host string) bool {
	return pattern == "" || pattern == host || pattern[0] == '.' && strings.HasSuffix(host, pattern)
}

func specific(pattern string) int {
	if pattern != "" && pattern[0] != '.' {
		return 1000
	}
	return len(pattern)
}

func takesPath(m routing.PathMatch, path string) bool {
	if m.Type == routing.Exact {
		return m.Path == path
	}
	return strings.HasPrefix(path+"/", m.Path+"/")
}

// routed does what HAProxy does with the maps of the hosts.
func routed(hosts []routing.Host, r request) string {
	byKey := map[string]routing.Host{}
	for _, h := range hosts {
		byKey[h.Key()] = h
	}
	names := []string{r.host}
	for rest := r.host; strings.Contains(rest, "."); {
		rest = rest[strings.Index(rest, ".")+1:]
		names = append(names, "."+rest)
	}
	for _, name := range append(names, "") {
		h, known := byKey["shop/web:80|"+name]
		if !known {
			continue
		}
		for known {
			if to, taken := choose(h, r); taken {
				return to
			}
			h, known = byKey[h.Next]
		}
		return ""
	}
	return ""
}

// choose returns where the most specific path of a host leads, and whether a path takes the request.
func choose(h routing.Host, r request) (string, bool) {
	var best *routing.Choice
	for _, c := range h.Choices() {
		if !takesPath(c.PathMatch, r.path) {
			continue
		}
		if best == nil || c.Type == routing.Exact || best.Type != routing.Exact && len(c.Path) > len(best.Path) {
			best = &c
		}
	}
	if best == nil {
		return "", false
	}
	for _, route := range best.Routes {
		if r.meets(route.Match.Conditions) {
			return route.Backend, true
		}
	}
	return "", true
}

type generator struct{ *rand.Rand }

func (g generator) pick(from ...string) string { return from[g.IntN(len(from))] }

func (g generator) host() string {
	return g.pick("", "h.example", "a.h.example", "b.a.h.example", ".h.example", ".a.h.example", ".example")
}

func (g generator) path() string { return g.pick("", "/a", "/a/b", "/b", "/a/b/c") }

func (g generator) listeners() []layout.Listener {
	var out []layout.Listener
	for range 1 + g.IntN(4) {
		host := g.host()
		if !slices.ContainsFunc(out, func(l layout.Listener) bool { return l.Host == host }) {
			out = append(out, layout.Listener{Host: host})
		}
	}
	for n := range 1 + g.IntN(9) {
		hosts := []string{g.host(), g.host()}
		for rule := range 1 + g.IntN(2) {
			m := g.match()
			m.Backend = fmt.Sprint("b", n, "_", rule)
			m.Rank = layout.Rank{Created: time.Unix(int64(g.IntN(3)), 0), Name: fmt.Sprint("r", n), Rule: rule}
			for i := range out {
				if g.IntN(3) == 0 {
					continue // it is not its parent
				}
				best := map[string]string{}
				for _, host := range hosts {
					if common, ok := layout.Common(out[i].Host, host); ok && (best[common] == "" || specific(host) > specific(best[common])) {
						best[common] = host
					}
				}
				for common, host := range best {
					m.Host, m.Of = common, host
					out[i].Matches = append(out[i].Matches, m)
				}
			}
		}
	}
	return out
}

func (g generator) match() layout.Match {
	m := layout.Match{PathMatch: routing.PathMatch{Type: routing.Prefix, Path: g.path()}}
	add := func(of routing.Part, value string) {
		m.Conditions = append(m.Conditions, routing.Condition{Of: of, Name: "x", Value: value})
	}
	switch g.IntN(6) {
	case 0, 1:
		m.Type, m.Path = routing.Exact, cmp.Or(m.Path, "/")
	case 2:
		m.Path = ""
		add(routing.PathPattern, g.pick("^/a.*$", "^/./b$"))
	}
	if g.IntN(4) == 0 {
		add(routing.Method, g.pick("GET", "POST"))
	}
	switch g.IntN(6) {
	case 0:
		add(routing.Header, g.pick("1", "2"))
	case 1:
		add(routing.HeaderPattern, "^[12]$")
	}
	if g.IntN(4) == 0 {
		add(routing.Query, g.pick("1", "2"))
	}
	return m
}

func (g generator) request() request {
	return request{
		host:   g.pick("h.example", "a.h.example", "b.a.h.example", "c.b.a.h.example", "x.h.example", "x.a.h.example", "example", "x.example", "other"),
		path:   g.pick("/", "/a", "/a/", "/a/b", "/b", "/b/c", "/a/b/c", "/c", "/ab"),
		method: g.pick("GET", "POST", "PUT"), header: g.pick("1", "2", "3"), query: g.pick("1", "2", "3"),
	}
}

// The number of matches of a path is bounded. A match that is left out is reported, and its requests go to no
// other host.
func TestOverfull(t *testing.T) {
	t.Parallel()
	l := layout.Listener{Host: "h.example"}
	for n := range 100 {
		l.Matches = append(l.Matches, layout.Match{
			Host: l.Host, PathMatch: routing.PathMatch{Type: routing.Prefix}, Backend: "b", Rank: layout.Rank{Rule: n},
			Conditions: []routing.Condition{{Of: routing.Header, Name: "x", Value: fmt.Sprint(n)}},
		})
	}
	hosts, over := layout.Hosts("shop/web:80", routing.AsSent, []layout.Listener{l})
	if len(over) != 1 || over[0].Match.Rank.Rule != 62 || over[0].String() == "" || len(hosts) != 1 || len(hosts[0].Routes) != 62 {
		t.Errorf("%d hosts, %v", len(hosts), over)
	}
}

// A set of hosts overlaps with a host if one of them does.
func TestHostSet(t *testing.T) {
	t.Parallel()
	g := rand.New(rand.NewPCG(1, 2))
	names := []string{"", ".example", "a.example", ".a.example", "b.a.example", ".b.a.example", "c.b.a.example", ".b.example", "b.example", "xa.example"}
	for range 20_000 {
		var set layout.HostSet
		var all []string
		for range g.IntN(4) {
			h := names[g.IntN(len(names))]
			set.Add(h)
			all = append(all, h)
		}
		host := names[g.IntN(len(names))]
		want := slices.ContainsFunc(all, func(h string) bool { _, both := layout.Common(h, host); return both })
		if got := set.Overlaps(host); got != want {
			t.Fatalf("%q and %q: %v", all, host, got)
		}
	}
}

// The owner of a host is the most specific listener that takes all of it.
func TestOwners(t *testing.T) {
	t.Parallel()
	g := rand.New(rand.NewPCG(3, 4))
	names := []string{"", ".example", "a.example", ".a.example", "b.a.example", ".b.a.example", "c.b.a.example", ".b.example", "b.example"}
	for range 20_000 {
		var listeners []layout.Listener
		for _, i := range g.Perm(len(names))[:g.IntN(5)] {
			listeners = append(listeners, layout.Listener{Host: names[i]})
		}
		host, want := names[g.IntN(len(names))], -1
		for i, l := range listeners {
			if layout.Takes(l.Host, host) && (want < 0 || layout.MoreSpecific(l.Host, listeners[want].Host) < 0) {
				want = i
			}
		}
		if got := layout.OwnersOf(listeners).Of(host); got != want {
			t.Fatalf("%q of %+v: %d, and not %d", host, listeners, got, want)
		}
	}
}
