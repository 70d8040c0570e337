package routing

import (
	"github.com/hapsnap/hapsnap/compiler/diag"
)

// Tree is the hosts that requests to a listener may be for, and what becomes of all others.
type Tree struct {
	Hosts         []Host // by name
	Held          []Held // by name, none that is among Hosts
	Default       string // as in a [Model]
	DefaultOrigin Origin
}

// TreeOf returns the hosts that requests to a listener may be for: its own, or else those of the
// model.
func (m Model) TreeOf(l Listener) Tree {
	if l.Own != nil {
		return *l.Own
	}
	return m.shared()
}

// shared returns the tree of all listeners that have none of their own.
func (m Model) shared() Tree { return Tree{m.Hosts, m.Held, m.Default, m.DefaultOrigin} }

// part returns what one object brings to a tree, nil if that is nothing, and adds the backends
// that it needs.
func (t *Tree) part(object diag.Object, needed map[string]bool) *Tree {
	if t == nil {
		return nil
	}
	var out Tree
	for _, h := range t.Hosts {
		if kept, ok := h.part(object); ok {
			out.Hosts = append(out.Hosts, kept)
			for _, r := range kept.Routes {
				needed[r.Backend] = true
			}
		}
	}
	if t.DefaultOrigin.Object == object {
		out.Default, out.DefaultOrigin = t.Default, t.DefaultOrigin
		needed[t.Default] = true
	}
	if len(out.Hosts) == 0 && out.Default == "" {
		return nil
	}
	return &out
}
