package render

import (
	"cmp"
	"slices"

	"github.com/hapsnap/hapsnap/compiler/policy"
	"github.com/hapsnap/hapsnap/compiler/routing"
)

// LooksUp reports whether a backend has servers whose names HAProxy looks up.
func (p Page) LooksUp() bool {
	return slices.ContainsFunc(slices.Concat(p.Backends, p.connections), func(b routing.Backend) bool {
		return slices.ContainsFunc(b.Targets, func(t routing.Target) bool { return t.Name != nil })
	})
}

// FastCGIApp is the settings of FastCGI that backends share, and the objects
// that asked for them.
type FastCGIApp struct {
	policy.FastCGI
	origins []routing.Origin
}

// FastCGIApps returns the settings of FastCGI, each once, by name.
func (p Page) FastCGIApps() []FastCGIApp {
	var out []FastCGIApp
	for _, b := range p.Backends {
		if b.Upstream == nil || b.Upstream.FastCGI == nil {
			continue
		}
		at := slices.IndexFunc(out, func(a FastCGIApp) bool { return a.Name() == b.Upstream.FastCGI.Name() })
		if at < 0 {
			at = len(out)
			out = append(out, FastCGIApp{FastCGI: *b.Upstream.FastCGI})
		}
		out[at].origins = append(out[at].origins, b.Origins...)
	}
	slices.SortFunc(out, func(a, b FastCGIApp) int { return cmp.Compare(a.Name(), b.Name()) })
	return out
}
