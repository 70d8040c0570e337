package routing

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"slices"
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
// name, on whatever host and path they are, and no backend has a name like it.
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

// Choices returns the choices of all hosts that are not plain, each once, by
// name.
func Choices(hosts []Host) []Choice {
	found := map[string]Choice{}
	for _, h := range hosts {
		if !slices.ContainsFunc(h.Routes, func(r Route) bool { return len(r.Match.Conditions) > 0 || r.Yields }) {
			continue // as most
		}
		for _, c := range h.Choices() {
			if _, known := found[c.To()]; !known && !c.Plain() {
				found[c.To()] = c
			}
		}
	}
	out := make([]Choice, 0, len(found))
	for _, c := range found {
		out = append(out, c)
	}
	slices.SortFunc(out, func(a, b Choice) int { return cmp.Compare(a.To(), b.To()) })
	return out
}
