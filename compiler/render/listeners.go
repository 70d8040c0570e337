package render

import (
	"slices"

	"github.com/hapsnap/hapsnap/compiler/routing"
)

// PassesOn reports whether some of the connections for HTTPS are passed on as
// they are, so that another frontend has the port.
func (p Page) PassesOn() bool {
	return slices.ContainsFunc(p.Listeners, func(l routing.Listener) bool { return l.Protocol == routing.HTTPS })
}
