// Package decision makes the tables for decisions that need more than host and path: the choices of hosts with their
// conditions, and the splits. HAProxy reads the tables as maps, so that a request takes no longer with many conditions,
// routes or shares.
package decision

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"maps"
	"net/url"
	"slices"
	"strings"

	"github.com/hapsnap/hapsnap/compiler/routing"
)

// Tables decide if host and path do not decide alone, in the form in which HAProxy reads them. Each condition of a choice
// has a bit. HAProxy reads each of Parts once, and looks up in Conditions which bits its value sets for the choice. Then it
// takes the first of the choice's routes whose Needs are all set. So the number of choices costs no time.
type Tables struct {
	Parts      []Part      // by kind and name
	Patterns   []Pattern   // by key
	Conditions []Condition // by key
	Routes     []Route     // by key
	// Positions is how many routes the longest choice has.
	Positions int
	Splits    []Split // by name
	// Widest is how many shares the widest split has.
	Widest int
	// Nexts are the hosts that have requests for whose path another host has no route, by key,
	// and Levels is how many hosts a request may come to.
	Nexts  []Next
	Levels int
}

// MostConditions is how many different conditions a choice may have: HAProxy's numbers have 63
// bits besides the sign.
const MostConditions = 62

// Split is a [routing.Split] with sums of weights.
type Split struct {
	Name   string
	Total  int
	Shares []Share
	Origin routing.Origin
}

// Share gets those of Total numbers that are below Below, and not below that of the share before.
type Share struct {
	Key     string // the name of the split and the position
	Backend string
	Below   int
}

// Next is the host that follows the one with the Key.
type Next struct {
	Key, Host string
	Origin    routing.Origin
}

// Part is a part of a request that conditions compare as a whole. Names of headers
// are in lower case.
type Part struct {
	Of   routing.Part
	Name string
}

// Key is what stands between the value of the part and the choice in the key of a
// [Condition].
func (p Part) Key() string { return "|" + strings.ToLower(string(p.Of)) + ":" + p.Name + "|" }

// Pattern is an expression that conditions compare the part Of a request with, and the key of
// its [Condition] without the choice.
type Pattern struct {
	Key           string
	Of            routing.Part
	Name, Pattern string
	Origins       []routing.Origin // each once, in the order of the choices
}

// Condition says which Bits a value of a part sets, for one choice.
type Condition struct {
	Key    string
	Bits   uint64
	Origin routing.Origin
}

// Route is a route of a choice: its position follows the name of the choice.
type Route struct {
	Key   string
	Needs uint64
	// To is the backend. A "+" before it says that the route yields while the backend has no
	// usable server.
	To     string
	Origin routing.Origin
}

// Decide returns the tables of hosts and splits. A choice has at most [MostConditions] different
// conditions: canaries have no more than four.
func Decide(hosts []routing.Host, splits []routing.Split) Tables {
	out := Tables{Splits: splitsOf(splits), Levels: 1}
	for _, s := range out.Splits {
		out.Widest = max(out.Widest, len(s.Shares))
	}
	out.Nexts, out.Levels = nextsOf(hosts)
	if slices.ContainsFunc(hosts, func(h routing.Host) bool { return h.Bind != "" }) {
		out.Positions, out.Widest, out.Levels = 8, max(out.Widest, 4), max(out.Levels, 3) // more than most need: each other number is a reload
	}
	parts := map[Part]bool{}
	patterns := map[string]Pattern{}
	known := map[string]bool{}
	for _, h := range hosts {
		if !slices.ContainsFunc(h.Routes, func(r routing.Route) bool { return len(r.Match.Conditions) > 0 || r.Yields }) {
			continue // as most
		}
		for _, c := range h.Choices() {
			to := c.To()
			if c.Plain() || known[to] {
				continue
			}
			known[to] = true
			out.Positions = max(out.Positions, len(c.Routes))
			bits := map[string]uint64{} // by key without the choice
			for i, r := range c.Routes {
				var needs uint64
				for _, condition := range r.Match.Conditions {
					key := keyOf(condition)
					bit, numbered := bits[key]
					if !numbered {
						bit = 1 << len(bits)
						bits[key] = bit
						out.Conditions = append(out.Conditions, Condition{key + to, bit, r.Origin})
					}
					needs |= bit
					if !isPattern(condition) {
						parts[partOf(condition)] = true
						continue
					}
					p := patterns[key]
					p.Key, p.Of, p.Name, p.Pattern = key, condition.Of, condition.Name, condition.Value
					if !slices.Contains(p.Origins, r.Origin) {
						p.Origins = append(p.Origins, r.Origin)
					}
					patterns[key] = p
				}
				target := r.Backend
				if r.Yields {
					target = "+" + target
				}
				out.Routes = append(out.Routes, Route{fmt.Sprintf("%s:%d", to, i+1), needs, target, r.Origin})
			}
		}
	}
	out.Parts = slices.SortedFunc(maps.Keys(parts), func(a, b Part) int {
		return cmp.Or(cmp.Compare(a.Of, b.Of), cmp.Compare(a.Name, b.Name))
	})
	out.Patterns = slices.SortedFunc(maps.Values(patterns), func(a, b Pattern) int { return cmp.Compare(a.Key, b.Key) })
	slices.SortFunc(out.Conditions, func(a, b Condition) int { return cmp.Compare(a.Key, b.Key) })
	slices.SortFunc(out.Routes, func(a, b Route) int { return cmp.Compare(a.Key, b.Key) })
	return out
}

func partOf(c routing.Condition) Part {
	if c.Of == routing.Header {
		return Part{c.Of, strings.ToLower(c.Name)}
	}
	return Part{c.Of, c.Name}
}

// keyOf returns the key of a [Condition] without the choice. A value is written as HAProxy's
// converter url_enc does, so that it has no blank and no "|". An expression is named by a
// digest: nobody finds another one with the same name, which would decide about a stranger's
// requests.
func keyOf(c routing.Condition) string {
	if isPattern(c) {
		kind := ""
		if c.Of != routing.HeaderPattern {
			kind = string(c.Of) + "\n"
		}
		digest := sha256.Sum256([]byte(kind + c.Name + "\n" + c.Value))
		return "|pattern:" + hex.EncodeToString(digest[:8]) + "|"
	}
	return strings.ReplaceAll(url.QueryEscape(c.Value), "+", "%20") + partOf(c).Key()
}

func isPattern(c routing.Condition) bool {
	return c.Of == routing.HeaderPattern || c.Of == routing.QueryPattern || c.Of == routing.PathPattern
}

func splitsOf(splits []routing.Split) []Split {
	var out []Split
	for _, s := range splits {
		d := Split{Name: s.Name, Origin: s.Origin}
		for i, share := range s.Shares {
			d.Total += share.Weight
			d.Shares = append(d.Shares, Share{fmt.Sprintf("%s:%d", s.Name, i+1), share.Backend, d.Total})
		}
		out = append(out, d)
	}
	return out
}

// nextsOf returns the hosts that follow others, and how many hosts the longest row has.
func nextsOf(hosts []routing.Host) ([]Next, int) {
	var out []Next
	next := map[string]string{}
	for _, h := range hosts {
		if h.Next != "" {
			out = append(out, Next{h.Key(), h.Next, h.Origin})
			next[h.Key()] = h.Next
		}
	}
	longest := 1
	for key := range next {
		n := 1
		for at := next[key]; at != ""; at = next[at] {
			n++
		}
		longest = max(longest, n)
	}
	return out, longest
}
