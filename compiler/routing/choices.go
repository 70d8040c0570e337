package routing

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"maps"
	"net/url"
	"slices"
	"strings"
)

// Choice is what becomes of the requests for one path of a host: the routes for
// it, in the order in which they are tried.
type Choice struct {
	PathMatch
	Routes []Route
}

// Choices returns the routes of the host by path.
func (h Host) Choices() []Choice {
	var out []Choice
	for rest := h.Routes; len(rest) > 0; {
		n := 1
		for n < len(rest) && rest[n].Match.PathMatch == rest[0].Match.PathMatch {
			n++
		}
		out = append(out, Choice{rest[0].Match.PathMatch, rest[:n]})
		rest = rest[n:]
	}
	return out
}

// ReplacesPrefix reports whether a route replaces the path of which it matched the beginning.
func (c Choice) ReplacesPrefix() bool {
	return c.Type != Expression && slices.ContainsFunc(c.Routes, Route.ReplacesPrefix)
}

// Plain reports whether nothing but host and path decides.
func (c Choice) Plain() bool { return len(c.Routes) == 1 && len(c.Routes[0].Match.Conditions) == 0 }

// To names what maps lead to: the backend, or else the choice itself, by the
// backend of its last route and a digest of the others. Equal choices have one
// name, on whatever host and path they are. The name of a choice has a "?", and that of
// no backend has one.
func (c Choice) To() string {
	last := c.Routes[len(c.Routes)-1]
	if c.Plain() {
		return last.Backend
	}
	digest := sha256.New()
	for _, r := range c.Routes {
		fmt.Fprintf(digest, "%q %q %v\n", r.Match.Conditions, r.Backend, r.Yields)
	}
	return last.Backend + "?" + hex.EncodeToString(digest.Sum(nil)[:4])
}

// Decisions are the choices of all hosts that are not plain, in the form in which HAProxy
// makes them. Each condition of a choice has a bit. HAProxy reads each of Parts once and
// looks up in Conditions which bits its value sets for the choice; then it takes the first
// of the choice's routes whose Needs are all set. So the number of choices costs no time.
type Decisions struct {
	Parts      []ConditionPart  // by kind and name
	Patterns   []PatternEntry   // by key
	Conditions []ConditionEntry // by key
	Routes     []RouteEntry     // by key
	// Positions is how many routes the longest choice has.
	Positions int
}

// ConditionPart is a part of a request that conditions compare as a whole. Names of headers
// are in lower case.
type ConditionPart struct {
	Of   Part
	Name string
}

// Key is what stands between the value of the part and the choice in the key of a
// [ConditionEntry].
func (p ConditionPart) Key() string { return "|" + strings.ToLower(string(p.Of)) + ":" + p.Name + "|" }

// PatternEntry is an expression that conditions compare the header Name with, and the key of
// its [ConditionEntry] without the choice.
type PatternEntry struct {
	Key, Name, Pattern string
	Origins            []Origin // each once, in the order of the choices
}

// ConditionEntry says which Bits a value of a part sets, for one choice.
type ConditionEntry struct {
	Key    string
	Bits   uint64
	Origin Origin
}

// RouteEntry is a route of a choice: its position follows the name of the choice.
type RouteEntry struct {
	Key   string
	Needs uint64
	// To is the backend. A "+" before it says that the route yields while the backend has no
	// usable server.
	To     string
	Origin Origin
}

// Decide returns the decisions of hosts. A choice has at most 62 different conditions, since
// HAProxy's numbers have 63 bits besides the sign: canaries have no more than four.
func Decide(hosts []Host) Decisions {
	var out Decisions
	parts := map[ConditionPart]bool{}
	patterns := map[string]PatternEntry{}
	known := map[string]bool{}
	for _, h := range hosts {
		if !slices.ContainsFunc(h.Routes, func(r Route) bool { return len(r.Match.Conditions) > 0 || r.Yields }) {
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
					key := condition.key()
					bit, numbered := bits[key]
					if !numbered {
						bit = 1 << len(bits)
						bits[key] = bit
						out.Conditions = append(out.Conditions, ConditionEntry{key + to, bit, r.Origin})
					}
					needs |= bit
					if condition.Of != HeaderPattern {
						parts[condition.part()] = true
						continue
					}
					p := patterns[key]
					p.Key, p.Name, p.Pattern = key, condition.Name, condition.Value
					if !slices.Contains(p.Origins, r.Origin) {
						p.Origins = append(p.Origins, r.Origin)
					}
					patterns[key] = p
				}
				target := r.Backend
				if r.Yields {
					target = "+" + target
				}
				out.Routes = append(out.Routes, RouteEntry{fmt.Sprintf("%s:%d", to, i+1), needs, target, r.Origin})
			}
		}
	}
	out.Parts = slices.SortedFunc(maps.Keys(parts), func(a, b ConditionPart) int {
		return cmp.Or(cmp.Compare(a.Of, b.Of), cmp.Compare(a.Name, b.Name))
	})
	out.Patterns = slices.SortedFunc(maps.Values(patterns), func(a, b PatternEntry) int { return cmp.Compare(a.Key, b.Key) })
	slices.SortFunc(out.Conditions, func(a, b ConditionEntry) int { return cmp.Compare(a.Key, b.Key) })
	slices.SortFunc(out.Routes, func(a, b RouteEntry) int { return cmp.Compare(a.Key, b.Key) })
	return out
}

func (c Condition) part() ConditionPart {
	if c.Of == Header {
		return ConditionPart{c.Of, strings.ToLower(c.Name)}
	}
	return ConditionPart{c.Of, c.Name}
}

// key is that of a [ConditionEntry] without the choice. A value is written as HAProxy's
// converter url_enc does, so that it has no blank and no "|". An expression is named by a
// digest: nobody finds another one with the same name, which would decide about a stranger's
// requests.
func (c Condition) key() string {
	if c.Of == HeaderPattern {
		digest := sha256.Sum256([]byte(c.Name + "\n" + c.Value))
		return "|pattern:" + hex.EncodeToString(digest[:8]) + "|"
	}
	return strings.ReplaceAll(url.QueryEscape(c.Value), "+", "%20") + c.part().Key()
}
