package routing

import (
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
	bound  bool // the host is one of a Bind with a name
}

// Choices returns the routes of the host by path.
func (h Host) Choices() []Choice {
	var out []Choice
	for rest := h.Routes; len(rest) > 0; {
		n := 1
		for n < len(rest) && rest[n].Match.PathMatch == rest[0].Match.PathMatch {
			n++
		}
		out = append(out, Choice{rest[0].Match.PathMatch, rest[:n], h.Bind != ""})
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
	length := 4
	if c.bound {
		length = 16 // objects of several namespaces put such a list together
	}
	return last.Backend + "?" + hex.EncodeToString(digest.Sum(nil)[:length])
}

// Complete reports whether some route takes every request that gets to the choice.
func (c Choice) Complete() bool { return len(c.Routes[len(c.Routes)-1].Match.Conditions) == 0 }
