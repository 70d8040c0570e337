// Package modeltest checks models of package routing in tests of what makes them.
package modeltest

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/hapsnap/hapsnap/compiler/routing"
)

// Check returns the rules of [routing.Model] that a model breaks. Whatever the objects are, that is a
// mistake of the translator that made the model.
func Check(m routing.Model) error {
	backends, connections := map[string]bool{}, map[string]bool{}
	var found []error
	found = append(found, ordered("backends", m.Backends, backendName, backends), ordered("backends of connections", m.ConnectionBackends, backendName, connections))
	found = append(found, ordered("listeners", m.Listeners, func(l routing.Listener) string { return l.Name }, map[string]bool{}))
	found = append(found, check(m.TreeOf(routing.Listener{}), "all listeners", backends))
	for _, l := range m.Listeners {
		if l.Own != nil && l.Protocol == routing.TCP {
			found = append(found, fmt.Errorf("listener %s has hosts of its own, and does not look at requests", l.Name))
		}
		if l.Own != nil {
			found = append(found, check(*l.Own, "listener "+l.Name, backends))
		}
		for _, r := range l.Routes {
			if r.Backend != "" && !connections[r.Backend] {
				found = append(found, fmt.Errorf("listener %s leads to the backend %s, which is not there", l.Name, r.Backend))
			}
		}
	}
	return errors.Join(found...)
}

// check returns the rules that a tree breaks; of names what has the tree.
func check(t routing.Tree, of string, backends map[string]bool) error {
	hosts := map[string]bool{}
	found := []error{ordered("hosts of "+of, t.Hosts, func(h routing.Host) string { return h.Name }, hosts)}
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

// ordered returns an error if a list is not sorted by key, or has a key twice. It collects the keys.
func ordered[T any](what string, list []T, key func(T) string, into map[string]bool) error {
	for _, x := range list {
		into[key(x)] = true
	}
	if !slices.IsSortedFunc(list, func(a, b T) int { return strings.Compare(key(a), key(b)) }) || len(into) != len(list) {
		return fmt.Errorf("%s are not sorted, or one is there twice", what)
	}
	return nil
}

func backendName(b routing.Backend) string { return b.Name }
