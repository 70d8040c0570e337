// Package layout lays the matches of routes out as hosts of package routing: which listener of a
// port has a host, which paths a host has, and in which order what matches a path is tried.
//
// # Decisions
//
// The specification ranks the hosts of routes, it does not say that a host owns a request. So where
// no match of a host takes a request, those of the next less specific host of the same listener
// may. HAProxy finds the next host where a host has nothing for a path. Where a host has matches with
// conditions only, those of the next host follow in the same list, with a key for each path below
// that the next host has.
package layout

import (
	"cmp"
	"fmt"
	"iter"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/hapsnap/hapsnap/compiler/routing"
	"github.com/hapsnap/hapsnap/compiler/routing/decision"
	"github.com/hapsnap/hapsnap/compiler/routing/hostname"
)

// Listener is a listener of a port. Host is named as a [routing.Host] is, "" stands for all.
type Listener struct {
	Host    string
	Name    string // of the hosts' Listener, or ""
	Matches []Match
	Origin  routing.Origin
}

// Match is one match of a route, for one host of the listener.
type Match struct {
	Host string // that both the route and the listener take: see [Common]
	// Of is the hostname of the route that the Host is of, or "" if it has none.
	Of string
	routing.PathMatch
	// Conditions may hold a [routing.PathPattern]: then the path is the root, as a prefix.
	Conditions []routing.Condition
	// Late says that an expression comes after all prefixes but the root.
	Late    bool
	Backend string // or a split
	Rank    Rank
	Origin  routing.Origin
}

// Rank orders matches that no part of them tells apart.
type Rank struct {
	Created         time.Time
	Namespace, Name string
	Rule, Match     int
}

// compare orders ranks; the winner comes first.
func (r Rank) compare(o Rank) int {
	return cmp.Or(r.Created.Compare(o.Created), cmp.Compare(r.Namespace, o.Namespace), cmp.Compare(r.Name, o.Name),
		cmp.Compare(r.Rule, o.Rule), cmp.Compare(r.Match, o.Match))
}

// Takes reports whether one host, named as in a [routing.Host], takes every request of another one.
func Takes(host, other string) bool {
	return host == "" || host == other || hostname.IsWildcard(host) && strings.HasSuffix(other, host)
}

// Common returns the host that takes what two hosts take, and whether there is one.
func Common(a, b string) (string, bool) {
	switch {
	case Takes(a, b):
		return b, true
	case Takes(b, a):
		return a, true
	}
	return "", false
}

// MoreSpecific orders hosts that all take one request, the most specific first.
func MoreSpecific(a, b string) int {
	wild := func(h string) bool { return h == "" || hostname.IsWildcard(h) }
	switch {
	case wild(a) != wild(b) && wild(a):
		return 1
	case wild(a) != wild(b):
		return -1
	}
	return cmp.Or(cmp.Compare(len(b), len(a)), cmp.Compare(a, b))
}

// Wider yields a host and the hosts that take all of its requests too, the most specific first.
func Wider(host string) iter.Seq[string] {
	return func(yield func(string) bool) {
		for yield(host) && host != "" {
			host = wider(host)
		}
	}
}

// wider returns the next less specific host that takes all requests of a host.
func wider(host string) string {
	labels := strings.TrimPrefix(host, ".")
	if i := strings.IndexByte(labels, '.'); i >= 0 {
		return labels[i:]
	}
	return ""
}

// Owners are the listeners of a port by their hosts.
type Owners map[string]int

// OwnersOf returns the owners of a port.
func OwnersOf(listeners []Listener) Owners {
	out := make(Owners, len(listeners))
	for i, l := range listeners {
		if _, taken := out[l.Host]; !taken {
			out[l.Host] = i
		}
	}
	return out
}

// Of returns the listener that gets the requests for a host, or for all hosts of a wildcard: the most specific one whose
// hostname covers all of it. It returns -1 if there is none.
func (o Owners) Of(host string) int {
	for h := range Wider(host) {
		if i, is := o[h]; is {
			return i
		}
	}
	return -1
}

// HostSet finds out whether a host has requests in common with one of many, without comparing it with each.
type HostSet struct {
	hosts, wider map[string]bool // wider are those that take all requests of one of the hosts
}

// Add adds a host.
func (s *HostSet) Add(host string) {
	if s.hosts == nil {
		s.hosts, s.wider = map[string]bool{}, map[string]bool{}
	}
	s.hosts[host] = true
	for h := range Wider(host) {
		s.wider[h] = true
	}
}

// Overlaps reports whether there is a host that has requests in common with a host: see [Common].
func (s *HostSet) Overlaps(host string) bool {
	if s.wider[host] {
		return true
	}
	for h := range Wider(host) {
		if s.hosts[h] {
			return true
		}
	}
	return false
}

// mostRoutes is how many routes one path of a host may have. Each position costs every request with
// conditions.
const mostRoutes = 62

// Overfull is a match that no list has room for.
type Overfull struct {
	Match Match
	Host  string
}

// String says what is wrong.
func (o Overfull) String() string {
	return fmt.Sprintf("more than %d matches, or different conditions, decide about one path of the host %q", mostRoutes, hostname.Shown(o.Host))
}

// Hosts returns the hosts of a port. No two listeners share a Host. Each listener has its own Host, even without routes:
// requests that it does not route are answered 404, and no other listener gets them.
func Hosts(bind string, form routing.PathForm, listeners []Listener) ([]routing.Host, []Overfull) {
	var out []routing.Host
	var over []Overfull
	owners := OwnersOf(listeners)
	for i, l := range listeners {
		byHost := byHostOf(l, i, owners)
		for host := range byHost {
			chain := chainOf(host, byHost)
			h := routing.Host{Bind: bind, Name: host, Form: form, Listener: l.Name, Origin: byHost[host].origin}
			if len(chain) > 1 {
				h.Next = routing.Host{Bind: bind, Name: chain[1]}.Key()
			}
			var full []Overfull
			h.Routes, full = routesOf(host, chain, byHost)
			out, over = append(out, h), append(over, full...)
		}
	}
	slices.SortFunc(out, func(a, b routing.Host) int { return cmp.Compare(a.Key(), b.Key()) })
	slices.SortFunc(over, func(a, b Overfull) int {
		return cmp.Or(a.Match.Rank.compare(b.Match.Rank), cmp.Compare(a.Host, b.Host))
	})
	return out, over
}

// byHostOf returns the matches that the i-th listener of a port has, by host.
func byHostOf(l Listener, i int, owners Owners) map[string]*paths {
	byHost := map[string]*paths{l.Host: {origin: l.Origin}}
	known := map[string]bool{} // whether the listener has a host
	for _, m := range l.Matches {
		own, is := known[m.Host]
		if !is {
			own = owners.Of(m.Host) == i
			known[m.Host] = own
		}
		if !own {
			continue // another listener has it
		}
		if byHost[m.Host] == nil {
			byHost[m.Host] = &paths{origin: m.Origin, first: &m.Rank}
		}
		byHost[m.Host].add(m)
	}
	for _, p := range byHost {
		slices.SortStableFunc(p.patterns, Match.compare)
	}
	return byHost
}

// chainOf returns a host and the hosts of the same listener that take its requests too, the most
// specific first.
func chainOf(host string, byHost map[string]*paths) []string {
	var out []string
	for h := range Wider(host) {
		if byHost[h] != nil {
			out = append(out, h)
		}
	}
	return out
}

// paths are the matches of one host, by path.
type paths struct {
	origin   routing.Origin // of the listener that has the host, or else of the first match
	first    *Rank          // nil for a listener's
	byPath   map[routing.PathMatch][]Match
	patterns []Match                                   // sorted
	whole    map[routing.PathMatch]bool                // keys with a match that has no conditions
	below    map[routing.PathMatch][]routing.PathMatch // see under
	firsts   map[routing.PathMatch][]Match             // see firstAt
}

func (p *paths) add(m Match) {
	if p.byPath == nil {
		p.byPath = map[routing.PathMatch][]Match{}
	}
	if p.first != nil && m.Rank.compare(*p.first) < 0 {
		p.first, p.origin = &m.Rank, m.Origin
	}
	if m.isPattern() {
		p.patterns = append(p.patterns, m)
		p.byPath[root] = append([]Match{}, p.byPath[root]...) // the key is there
		return
	}
	p.byPath[m.PathMatch] = append(p.byPath[m.PathMatch], m)
	if len(m.Conditions) == 0 {
		if p.whole == nil {
			p.whole = map[routing.PathMatch]bool{}
		}
		p.whole[m.PathMatch] = true
	}
}

// root is the path of all requests.
var root = routing.PathMatch{Type: routing.Prefix}

// key returns the key of the host that the match is under.
func (m Match) key() routing.PathMatch {
	if m.isPattern() {
		return root
	}
	return m.PathMatch
}

// takesAll reports whether a match without conditions takes all requests that get to a key.
func (p *paths) takesAll(key routing.PathMatch) bool {
	return len(p.whole) > 0 && (p.whole[key] || slices.ContainsFunc(prefixesOf(key), func(prefix routing.PathMatch) bool { return p.whole[prefix] }))
}

// under returns the keys whose requests all get to a prefix, the prefix itself among them.
func (p *paths) under(prefix routing.PathMatch) []routing.PathMatch {
	if p.below == nil {
		p.below = map[routing.PathMatch][]routing.PathMatch{}
		for key := range p.byPath {
			for _, prefix := range prefixesOf(key) {
				p.below[prefix] = append(p.below[prefix], key)
			}
		}
	}
	return p.below[prefix]
}

func (m Match) isPattern() bool {
	return slices.ContainsFunc(m.Conditions, func(c routing.Condition) bool { return c.Of == routing.PathPattern })
}

// at returns the matches that may take requests which get to a key, in the order in which they are
// tried.
func (p *paths) at(key routing.PathMatch) []Match {
	var out []Match
	if key.Type == routing.Exact {
		out = append(out, p.byPath[key]...)
	}
	for _, prefix := range prefixesOf(key) {
		out = append(out, p.byPath[prefix]...)
	}
	slices.SortStableFunc(out, Match.compare)
	return merged(p.patterns, out)
}

// firstAt returns what [tried] needs of the matches at a key: the first of those with equal conditions, up to one without.
// Those of a less specific host are needed for each key of each host below it, so that they are kept. What comes before
// may know as many conditions as a list can have; so twice as many, and one more, are always enough.
func (p *paths) firstAt(key routing.PathMatch) []Match {
	if out, is := p.firsts[key]; is {
		return out
	}
	var out []Match
	known := map[string]bool{}
	for _, m := range p.at(key) {
		if same := textOf(m.Conditions); !known[same] {
			known[same] = true
			out = append(out, m)
		}
		if len(m.Conditions) == 0 || len(out) > 2*mostRoutes {
			break
		}
	}
	if p.firsts == nil {
		p.firsts = map[routing.PathMatch][]Match{}
	}
	p.firsts[key] = out
	return out
}

// merged returns the matches of two sorted lists in order. Of equal ones, those of the first list come first.
func merged(a, b []Match) []Match {
	switch {
	case len(a) == 0:
		return b
	case len(b) == 0:
		return a
	}
	out := make([]Match, 0, len(a)+len(b))
	for len(a) > 0 && len(b) > 0 {
		if a[0].compare(b[0]) <= 0 {
			out, a = append(out, a[0]), a[1:]
		} else {
			out, b = append(out, b[0]), b[1:]
		}
	}
	return append(append(out, a...), b...)
}

// prefixesOf returns the prefixes that take all requests of a key.
func prefixesOf(key routing.PathMatch) []routing.PathMatch {
	out := []routing.PathMatch{}
	if key.Type == routing.Prefix || !strings.HasSuffix(key.Path, "/") {
		out = append(out, routing.PathMatch{Type: routing.Prefix, Path: key.Path})
	}
	for i := len(key.Path) - 1; i >= 0; i-- {
		if key.Path[i] == '/' {
			out = append(out, routing.PathMatch{Type: routing.Prefix, Path: key.Path[:i]})
		}
	}
	return out
}

// compare orders matches for one host and one request; the winner comes first.
func (m Match) compare(o Match) int {
	kind := func(m Match) int {
		switch {
		case m.Type == routing.Exact:
			return 0
		case m.isPattern() && !m.Late:
			return 1
		}
		return 2
	}
	late := func(m Match) int { // before the root
		if m.Late {
			return 0
		}
		return 1
	}
	count := func(m Match, parts ...routing.Part) (n int) {
		for _, c := range m.Conditions {
			if slices.Contains(parts, c.Of) {
				n++
			}
		}
		return n
	}
	return cmp.Or(
		MoreSpecific(m.Of, o.Of), // which differ where the Host is the listener's
		cmp.Compare(kind(m), kind(o)),
		cmp.Compare(len(o.Path), len(m.Path)),
		cmp.Compare(late(m), late(o)),
		cmp.Compare(count(o, routing.Method), count(m, routing.Method)),
		cmp.Compare(count(o, routing.Header, routing.HeaderPattern), count(m, routing.Header, routing.HeaderPattern)),
		cmp.Compare(count(o, routing.Query, routing.QueryPattern), count(m, routing.Query, routing.QueryPattern)),
		m.Rank.compare(o.Rank),
	)
}

// routesOf returns the routes of a host. For a path without a route that takes every request, it adds those of the next
// hosts in the chain.
func routesOf(host string, chain []string, byHost map[string]*paths) ([]routing.Route, []Overfull) {
	own := byHost[host]
	keys := map[routing.PathMatch]bool{}
	for key := range own.byPath {
		keys[key] = true
	}
	for prefix := range own.byPath {
		if prefix.Type != routing.Prefix || own.takesAll(prefix) {
			continue
		}
		for i, less := range chain[1:] {
			for _, key := range byHost[less].under(prefix) {
				if !keys[key] && open(key, chain[:i+1], byHost) {
					keys[key] = true
				}
			}
		}
	}
	var out []routing.Route
	var over []Overfull
	for key := range keys {
		routes, full := listOf(host, key, chain, byHost)
		out, over = append(out, routes...), append(over, full...)
	}
	slices.SortStableFunc(out, func(a, b routing.Route) int { return a.Match.Compare(b.Match.PathMatch) })
	return out, over
}

// open reports whether the hosts of a chain may leave requests for a key to others.
func open(key routing.PathMatch, chain []string, byHost map[string]*paths) bool {
	return !slices.ContainsFunc(chain, func(host string) bool { return byHost[host].takesAll(key) })
}

// listOf returns the routes for one path of a host, in the order in which they are tried.
func listOf(host string, key routing.PathMatch, chain []string, byHost map[string]*paths) (out []routing.Route, over []Overfull) {
	matches, full := tried(key, chain, byHost)
	for _, m := range matches {
		out = append(out, routing.Route{
			Match: routing.Match{PathMatch: key, Conditions: m.Conditions}, Backend: m.Backend, Origin: m.Origin,
		})
	}
	if full != nil {
		over = []Overfull{{*full, host}}
	}
	return out, over
}

// textOf returns a text that no other conditions have.
func textOf(conditions []routing.Condition) string {
	var b []byte
	for _, c := range conditions {
		for _, part := range []string{string(c.Of), c.Name, c.Value} {
			b = append(strconv.AppendInt(b, int64(len(part)), 10), ':')
			b = append(b, part...)
		}
	}
	return string(b)
}

// tried returns the matches for one path of a host, in the order in which they are tried, and the first one that the list
// has no room for, or nil.
func tried(key routing.PathMatch, chain []string, byHost map[string]*paths) (out []Match, full *Match) {
	known, conditions := map[string]bool{}, map[routing.Condition]bool{}
	for _, h := range chain {
		for _, m := range byHost[h].firstAt(key) {
			if len(m.Conditions) == 0 && len(out) < mostRoutes {
				return append(out, m), nil
			}
			same := textOf(m.Conditions)
			if known[same] {
				continue // what comes before takes its requests
			}
			known[same] = true
			more := map[routing.Condition]bool{}
			for _, c := range m.Conditions {
				if !conditions[c] {
					more[c] = true
				}
			}
			if len(conditions)+len(more) > decision.MostConditions || len(out) == mostRoutes {
				return out, &m
			}
			maps.Copy(conditions, more)
			out = append(out, m)
		}
	}
	return out, nil
}
