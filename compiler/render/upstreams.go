package render

import (
	"slices"

	"github.com/hapsnap/hapsnap/compiler/routing"
)

// LooksUp reports whether a backend has servers whose names HAProxy looks up.
func (p Page) LooksUp() bool {
	return slices.ContainsFunc(slices.Concat(p.Backends, p.connections), func(b routing.Backend) bool {
		return slices.ContainsFunc(b.Targets, func(t routing.Target) bool { return t.Name != nil })
	})
}
