package routing

import (
	"cmp"
	"slices"
)

// Guard refuses requests of a host whose path servers read in different ways, such as
// /public/..%2fadmin. HAProxy would take it for one of /public, and a server for one of
// /admin, past what protects that.
//
// What an Ingress protects can be walked around by way of routes to the same server, which
// are those of its namespace. So it has requests for these refused, and for nobody else's
// on a host that it shares. The namespace that has a host guards all of it.
type Guard struct {
	// Namespace is that of the routes that take the requests; "" are those that no route
	// takes.
	Namespace string
	// Parameters says that paths with parameters are refused too.
	Parameters bool
	Origin     Origin
}

// GuardEntry is a line of the map of guards. It says of "HOST|NAMESPACE" what is refused,
// and of what maps lead to that it protects something.
type GuardEntry struct {
	Key, Value string
	Origin     Origin
}

// The values of a [GuardEntry].
const (
	guardsForms      = "forms"
	guardsParameters = "parameters"
	isProtected      = "protected"
)

// Guards returns the entries for hosts, by key.
func Guards(hosts []Host) []GuardEntry {
	var out []GuardEntry
	protected := map[string]Origin{}
	for _, h := range hosts {
		for _, g := range h.Guards {
			value := guardsForms
			if g.Parameters {
				value = guardsParameters
			}
			out = append(out, GuardEntry{h.Name + "|" + g.Namespace, value, g.Origin})
		}
		if len(h.Guards) == 0 {
			continue // as most
		}
		for _, c := range h.Choices() {
			if last := c.Routes[len(c.Routes)-1]; last.Protects {
				if was, known := protected[c.To()]; !known || last.Origin.Compare(was) < 0 {
					protected[c.To()] = last.Origin
				}
			}
		}
	}
	for name, origin := range protected {
		out = append(out, GuardEntry{name, isProtected, origin})
	}
	slices.SortFunc(out, func(a, b GuardEntry) int { return cmp.Compare(a.Key, b.Key) })
	return out
}
