package routing

import (
	"errors"
	"fmt"
	"slices"
	"strings"

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

// Check says what keeps a model from meaning anything. Whatever the objects are, that is a mistake
// of what made the model.
func (m Model) Check() error {
	backends, connections := map[string]bool{}, map[string]bool{}
	var found []error
	found = append(found, ordered("backends", m.Backends, backendKey, backends), ordered("backends of connections", m.ConnectionBackends, backendKey, connections))
	found = append(found, ordered("listeners", m.Listeners, func(l Listener) string { return l.Name }, map[string]bool{}))
	found = append(found, m.shared().check("all listeners", backends))
	for _, l := range m.Listeners {
		if l.Own != nil && l.Protocol == TCP {
			found = append(found, fmt.Errorf("listener %s has hosts of its own, and does not look at requests", l.Name))
		}
		if l.Own != nil {
			found = append(found, l.Own.check("listener "+l.Name, backends))
		}
		for _, r := range l.Routes {
			if r.Backend != "" && !connections[r.Backend] {
				found = append(found, fmt.Errorf("listener %s leads to the backend %s, which is not there", l.Name, r.Backend))
			}
		}
	}
	return errors.Join(found...)
}

// check says what is wrong with a tree; of names what has it.
func (t Tree) check(of string, backends map[string]bool) error {
	hosts := map[string]bool{}
	found := []error{ordered("hosts of "+of, t.Hosts, func(h Host) string { return h.Name }, hosts)}
	for _, h := range t.Held {
		if hosts[h.Name] {
			found = append(found, fmt.Errorf("host %q of %s is held, and has routes", h.Name, of))
		}
	}
	lead := func(from, to string) {
		if !backends[to] {
			found = append(found, fmt.Errorf("%s of %s leads to the backend %s, which is not there", from, of, to))
		}
	}
	if t.Default != "" {
		lead("the default", t.Default)
	}
	for _, h := range t.Hosts {
		for _, c := range h.Choices() {
			for _, r := range c.Routes {
				lead(fmt.Sprintf("path %q of host %q", c.Path, h.Name), r.Backend)
			}
			if last := c.Routes[len(c.Routes)-1]; len(last.Match.Conditions) > 0 {
				found = append(found, fmt.Errorf("path %q of host %q of %s has no route without conditions", c.Path, h.Name, of))
			}
		}
	}
	return errors.Join(found...)
}

// ordered says that a list is not sorted by key, or has one twice. It notes the keys.
func ordered[T any](what string, list []T, key func(T) string, into map[string]bool) error {
	for _, x := range list {
		into[key(x)] = true
	}
	if !slices.IsSortedFunc(list, func(a, b T) int { return strings.Compare(key(a), key(b)) }) || len(into) != len(list) {
		return fmt.Errorf("%s are not sorted, or one is there twice", what)
	}
	return nil
}
