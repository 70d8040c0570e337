package layout

import (
	"cmp"
	"maps"
	"slices"

	"github.com/hapsnap/hapsnap/compiler/diag"
	"github.com/hapsnap/hapsnap/compiler/routing"
)

// Matches that are laid out are more than those of the routes: each path of a host lists the matches of all shorter ones
// and all expressions, and a host that has matches with conditions only has the paths of the next hosts too. So a few
// objects may become millions of entries of maps. Crowd counts them without making them.
//
// Each entry is there because of a match, of the route that brought the path, and of the one that has the host list it. The
// youngest of these routes pays for it. So no route makes an older one go.

// Size is what matches become: how many entries of lists, and how many bytes these have.
type Size struct{ Routes, Bytes int }

func (s Size) plus(o Size) Size { return Size{s.Routes + o.Routes, s.Bytes + o.Bytes} }

// over reports whether the size is above a limit; 0 is no limit.
func (s Size) over(most Size) bool {
	return most.Routes > 0 && s.Routes > most.Routes || most.Bytes > 0 && s.Bytes > most.Bytes
}

// Bytes returns how many bytes the path and the conditions of a match have.
func (m Match) Bytes() int {
	n := len(m.Path)
	for _, c := range m.Conditions {
		n += len(c.Name) + len(c.Value)
	}
	return n
}

// LeftOut is a route that is left out, and whether for its bytes.
type LeftOut struct {
	Route diag.Object
	Bytes bool
}

// A match without conditions keeps others out of lists, so that to leave out its route may raise the count. Crowd then
// counts again, and after so many rounds as if the namespaces that lost routes had no such matches.
const mostRounds = 4

// Crowd returns the routes to leave out so that those of no namespace become more than a limit: the youngest. The ports
// have listeners as [Hosts] takes them.
func Crowd(ports [][]Listener, most Size) []LeftOut {
	if (most == Size{}) {
		return nil
	}
	out, losers := map[diag.Object]bool{}, map[string]bool{}
	var all []LeftOut
	for round := 1; ; round++ {
		c := &crowd{most: most, used: map[string]Size{}, later: map[*arrival]Size{}, of: map[diag.Object]*arrival{}, heads: map[*paths]map[routing.PathMatch][]Match{}}
		if round > mostRounds {
			c.ignored = losers
		}
		for _, listeners := range ports {
			owners := OwnersOf(listeners)
			for i, l := range listeners {
				c.places = append(c.places, c.place(l, i, owners, out))
			}
		}
		if round == 1 && !c.mayBeOver() {
			return nil
		}
		left := c.leaveOut()
		if len(left) == 0 {
			return all
		}
		all = append(all, left...)
		for _, l := range left {
			out[l.Route], losers[c.of[l.Route].rank.Namespace] = true, true
		}
	}
}

// crowd counts the routes of one world.
type crowd struct {
	most    Size
	places  []*place
	ignored map[string]bool // namespaces whose matches without conditions keep nothing out
	used    map[string]Size // by namespace
	of      map[diag.Object]*arrival
	later   map[*arrival]Size                        // entries of routes that were not counted yet
	heads   map[*paths]map[routing.PathMatch][]Match // see headOf
}

// arrival is a route with its matches; the oldest arrives first.
type arrival struct {
	route   diag.Object
	rank    Rank
	entries []entry
	order   int
}

type entry struct {
	place *place
	match Match
}

// place is a listener.
type place struct {
	byHost map[string]*paths
	chains map[string][]string
	hosts  map[string]*counted
}

// counted is what was counted of one host.
type counted struct {
	own, listed map[routing.PathMatch]bool
	shut        map[routing.PathMatch]bool                // keys of next hosts that are not listed, since nothing is left for these
	below       map[routing.PathMatch][]routing.PathMatch // own keys, by prefix
	openers     map[routing.PathMatch][]string            // more specific hosts that list keys below a prefix
}

// place returns a listener without the routes that are out.
func (c *crowd) place(l Listener, i int, owners Owners, out map[diag.Object]bool) *place {
	if len(out) > 0 {
		l.Matches = slices.DeleteFunc(slices.Clone(l.Matches), func(m Match) bool { return out[m.Origin.Object] })
	}
	p := &place{byHost: byHostOf(l, i, owners), chains: map[string][]string{}, hosts: map[string]*counted{}}
	for host, of := range p.byHost {
		maps.DeleteFunc(of.whole, func(key routing.PathMatch, _ bool) bool { return !slices.ContainsFunc(of.byPath[key], c.ends) })
		p.chains[host] = chainOf(host, p.byHost)
		p.hosts[host] = &counted{
			own: map[routing.PathMatch]bool{}, listed: map[routing.PathMatch]bool{}, shut: map[routing.PathMatch]bool{},
			below: map[routing.PathMatch][]routing.PathMatch{}, openers: map[routing.PathMatch][]string{},
		}
	}
	return p
}

// ends reports whether a match keeps those after it out of a list.
func (c *crowd) ends(m Match) bool { return len(m.Conditions) == 0 && !c.ignored[m.Rank.Namespace] }

// mayBeOver reports whether all routes together may be above the limit, by an upper bound that is quickly found. Mostly
// they are far below, and nothing else is counted.
func (c *crowd) mayBeOver() bool {
	var all Size
	for _, p := range c.places {
		type sum struct{ conditional, longest int }
		sums := map[string]sum{}
		for host, of := range p.byHost {
			s := sum{conditional: len(of.patterns)}
			for _, matches := range append(slices.Collect(maps.Values(of.byPath)), of.patterns) {
				for _, m := range matches {
					s.longest = max(s.longest, m.Bytes())
					if len(m.Conditions) > 0 && !m.isPattern() {
						s.conditional++
					}
				}
			}
			sums[host] = s
		}
		for host, chain := range p.chains {
			keys, list, longest := len(p.byHost[host].byPath), 1, 0
			for i, h := range chain {
				if i > 0 && !p.byHost[host].takesAll(root) {
					keys += len(p.byHost[h].byPath)
				}
				list, longest = list+sums[h].conditional, max(longest, sums[h].longest)
			}
			entries := keys * min(list, mostRoutes)
			all = all.plus(Size{entries, entries * (len(host) + longest)})
		}
	}
	return all.over(c.most)
}

// leaveOut counts the routes, the oldest first, and returns those with which their namespace is above the limit.
func (c *crowd) leaveOut() []LeftOut {
	for _, p := range c.places {
		for _, host := range slices.Sorted(maps.Keys(p.byHost)) { // the order decides what is counted before the limit
			of := p.byHost[host]
			keys := slices.SortedFunc(maps.Keys(of.byPath), func(a, b routing.PathMatch) int {
				return cmp.Or(cmp.Compare(a.Path, b.Path), cmp.Compare(a.Type, b.Type))
			})
			lists := [][]Match{of.patterns}
			for _, key := range keys {
				lists = append(lists, of.byPath[key])
			}
			for _, matches := range lists {
				for _, m := range matches {
					m.Host = host
					c.arrivalOf(m).entries = append(c.arrivalOf(m).entries, entry{p, m})
				}
			}
		}
	}
	arrivals := slices.SortedFunc(maps.Values(c.of), func(a, b *arrival) int {
		return cmp.Or(a.rank.compare(b.rank), a.route.Compare(b.route))
	})
	for i, a := range arrivals {
		a.order = i
	}
	var out []LeftOut
	for _, a := range arrivals {
		t := &counting{crowd: c, arrival: a, size: c.used[a.rank.Namespace].plus(c.later[a]), later: map[*arrival]Size{}}
		if t.count() {
			t.keep()
			continue
		}
		t.undo()
		out = append(out, LeftOut{a.route, c.most.Routes == 0 || t.size.Routes <= c.most.Routes})
	}
	return out
}

// arrivalOf returns the route of a match.
func (c *crowd) arrivalOf(m Match) *arrival {
	a := c.of[m.Origin.Object]
	if a == nil {
		a = &arrival{route: m.Origin.Object, rank: Rank{Created: m.Rank.Created, Namespace: m.Rank.Namespace, Name: m.Rank.Name}}
		c.of[m.Origin.Object] = a
	}
	return a
}

// counting counts one route.
type counting struct {
	*crowd
	*arrival
	size  Size // of the namespace with it
	later map[*arrival]Size
	undos []func()
}

// count adds the entries that are there once the route has arrived, and reports whether they are within the limit.
func (t *counting) count() bool {
	for _, e := range t.entries {
		if t.size.over(t.most) || !t.add(e.place, e.match.Host, e.match.key()) {
			return false
		}
	}
	return !t.size.over(t.most)
}

func (t *counting) keep() {
	t.used[t.rank.Namespace] = t.size
	for a, s := range t.later {
		t.crowd.later[a] = t.crowd.later[a].plus(s)
	}
}

func (t *counting) undo() {
	for _, undo := range slices.Backward(t.undos) {
		undo()
	}
}

// add counts a key of a host, with the keys that the host now has of the next ones, and those hosts that have the key of
// this one.
func (t *counting) add(p *place, host string, key routing.PathMatch) bool {
	h := p.hosts[host]
	if h.own[key] {
		return true
	}
	t.mark(h.own, key)
	if !t.list(p, host, key) {
		return false
	}
	for _, prefix := range prefixesOf(key) {
		push(t, h.below, prefix, key)
		for _, other := range h.openers[prefix] {
			if !t.list(p, other, key) {
				return false
			}
		}
	}
	if key.Type != routing.Prefix || p.byHost[host].takesAll(key) {
		return true
	}
	for _, less := range p.chains[host][1:] {
		next := p.hosts[less]
		push(t, next.openers, key, host)
		for _, copied := range next.below[key] {
			if !t.list(p, host, copied) {
				return false
			}
		}
	}
	return true
}

// list counts the entries of a key in the list of a host, and reports whether all is within the limit so far.
func (t *counting) list(p *place, host string, key routing.PathMatch) bool {
	h := p.hosts[host]
	if h.listed[key] {
		return true
	}
	chain := p.chains[host]
	from := slices.IndexFunc(chain, func(h string) bool { return p.hosts[h].own[key] })
	if from > 0 && !open(key, chain[:from], p.byHost) {
		if !h.shut[key] {
			t.mark(h.shut, key)
			t.size.Routes++ // it takes time to find that out
		}
		return !t.size.over(t.most)
	}
	t.mark(h.listed, key)
	for _, m := range t.tried(key, chain, p.byHost) {
		one := Size{1, len(host) + len(key.Path) - len(m.Path) + m.Bytes()}
		if of := t.of[m.Origin.Object]; of.order > t.order {
			t.later[of] = t.later[of].plus(one)
			continue
		}
		t.size = t.size.plus(one)
	}
	return !t.size.over(t.most)
}

// tried returns what a list has, or may get once other routes are left out.
func (c *crowd) tried(key routing.PathMatch, chain []string, byHost map[string]*paths) []Match {
	if len(c.ignored) == 0 {
		out, _ := tried(key, chain, byHost)
		return out
	}
	var out []Match
	for _, h := range chain {
		for _, m := range c.headOf(byHost[h], key) {
			if len(out) == mostRoutes {
				return out
			}
			if out = append(out, m); c.ends(m) {
				return out
			}
		}
	}
	return out
}

// headOf returns the first matches of a host at a key, as many as a list may have, up to one that ends it. They are kept,
// since those of a less specific host are needed for each key of each host below it.
func (c *crowd) headOf(of *paths, key routing.PathMatch) []Match {
	if head, is := c.heads[of][key]; is {
		return head
	}
	head := of.at(key)
	if n := slices.IndexFunc(head, c.ends); n >= 0 {
		head = head[:n+1]
	}
	head = slices.Clone(head[:min(len(head), mostRoutes)])
	if c.heads[of] == nil {
		c.heads[of] = map[routing.PathMatch][]Match{}
	}
	c.heads[of][key] = head
	return head
}

func (t *counting) mark(in map[routing.PathMatch]bool, key routing.PathMatch) {
	in[key] = true
	t.undos = append(t.undos, func() { delete(in, key) })
}

func push[T any](t *counting, to map[routing.PathMatch][]T, key routing.PathMatch, value T) {
	to[key] = append(to[key], value)
	t.undos = append(t.undos, func() { to[key] = to[key][:len(to[key])-1] })
}
