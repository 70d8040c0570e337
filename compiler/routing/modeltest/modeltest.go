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
	found = append(found, check(m, backends, connections))
	splits := map[string]bool{}
	for _, s := range m.Splits {
		splits[s.Name] = true
	}
	for _, l := range m.Listeners {
		for _, r := range l.Routes {
			if r.Backend != "" && !connections[r.Backend] && !(l.Bind != "" && splits[r.Backend]) {
				found = append(found, fmt.Errorf("listener %s leads to the backend %s, which is not there", l.Name, r.Backend))
			}
		}
		if l.Bind != "" {
			found = append(found, ordered("routes of "+l.Name, l.Routes, func(r routing.ConnectionRoute) string { return r.SNI }, map[string]bool{}))
		}
	}
	return errors.Join(found...)
}

// check returns the rules that the hosts of a model break.
func check(m routing.Model, backends, connections map[string]bool) error {
	hosts, binds, splits := map[string]bool{}, map[string]bool{"": true}, map[string]bool{}
	found := []error{
		ordered("binds", m.Binds, func(b routing.Bind) string { return b.Name }, map[string]bool{}),
		ordered("hosts", m.Hosts, routing.Host.Key, hosts),
		ordered("splits", m.Splits, func(s routing.Split) string { return s.Name }, splits),
	}
	for _, b := range m.Binds {
		binds[b.Name] = true
	}
	for _, h := range m.Held {
		if hosts[h.Name] {
			found = append(found, fmt.Errorf("host %q is held, and has routes", h.Name))
		}
	}
	lead := func(from, to string) {
		if !backends[to] && !splits[to] {
			found = append(found, fmt.Errorf("%s leads to the backend %s, which is not there", from, to))
		}
	}
	if m.Default != "" {
		lead("the default", m.Default)
	}
	for _, b := range m.Backends {
		for _, name := range b.Named() {
			lead("a filter of the backend "+b.Name, name)
		}
	}
	for _, s := range m.Splits {
		for _, share := range s.Shares {
			if !connections[share.Backend] {
				lead("the split "+s.Name, share.Backend)
			}
			if share.Weight <= 0 || splits[share.Backend] {
				found = append(found, fmt.Errorf("the split %s has a share that means nothing", s.Name))
			}
		}
		if !strings.HasPrefix(s.Name, "%") || len(s.Shares) == 0 {
			found = append(found, fmt.Errorf("the split %s is none", s.Name))
		}
	}
	for _, h := range m.Hosts {
		if !binds[h.Bind] {
			found = append(found, fmt.Errorf("host %q is one of the bind %s, which is not there", h.Name, h.Bind))
		}
		if h.Next != "" && (!hosts[h.Next] || h.Bind == "" || h.Next == h.Key()) {
			found = append(found, fmt.Errorf("host %q of the bind %s leads to the host %q", h.Name, h.Bind, h.Next))
		}
		for _, c := range h.Choices() {
			for _, r := range c.Routes {
				lead(fmt.Sprintf("path %q of host %q", c.Path, h.Name), r.Backend)
			}
			if !c.Complete() && h.Bind == "" {
				found = append(found, fmt.Errorf("path %q of host %q has no route without conditions", c.Path, h.Name))
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
