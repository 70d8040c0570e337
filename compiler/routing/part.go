package routing

import (
	"bytes"
	"cmp"
	"reflect"
	"slices"
	"strings"

	"github.com/hapsnap/hapsnap/compiler/diag"
	"github.com/hapsnap/hapsnap/compiler/policy"
	"github.com/hapsnap/hapsnap/compiler/routing/hostname"
)

// Part returns what one object adds to a model, and what that refers to. HAProxy accepts the configuration of the part
// exactly if it accepts the lines of the object in that of the whole model. Its check takes time for the part, not for the
// whole. Mentioned are words of the object; backends with such a name are kept too.
func (m Model) Part(object diag.Object, mentioned map[string]bool) Model {
	p := Model{Countries: m.Countries.sample(), ErrorPages: m.ErrorPages, Authorities: m.Authorities, DefaultCertificate: m.DefaultCertificate}
	hosts, needed, bound := map[string]bool{}, map[string]bool{}, map[string]bool{}
	for _, h := range m.Hosts {
		if kept, ok := h.part(object); ok {
			p.Hosts = append(p.Hosts, kept)
			hosts[h.Name] = true
			bound[h.Bind] = true
			for _, r := range kept.Routes {
				needed[r.Backend] = true
			}
		}
	}
	if m.DefaultOrigin.Object == object {
		p.Default, p.DefaultOrigin = m.Default, m.DefaultOrigin
		needed[m.Default] = true
	}
	for _, l := range m.Listeners {
		own := slices.ContainsFunc(l.Origins, func(o Origin) bool { return o.Object == object })
		if l.Bind == "" || !own {
			l.Routes = slices.DeleteFunc(slices.Clone(l.Routes), func(r ConnectionRoute) bool { return r.Origin.Object != object })
		}
		if len(l.Routes) > 0 || own {
			p.Listeners = append(p.Listeners, l)
			bound[l.Bind] = true
		}
		for _, r := range l.Routes {
			needed[r.Backend] = true
		}
	}
	p.Binds = kept(m.Binds, func(b Bind) bool {
		return bound[b.Name] || slices.ContainsFunc(b.Origins, func(o Origin) bool { return o.Object == object })
	})
	p.Splits = kept(m.Splits, func(s Split) bool { return needed[s.Name] || s.Origin.Object == object })
	for _, s := range p.Splits {
		for _, share := range s.Shares {
			needed[share.Backend] = true
		}
	}
	keep := func(b Backend) bool {
		return needed[b.Name] || mentioned[b.Name] || slices.ContainsFunc(b.Origins, func(o Origin) bool { return o.Object == object })
	}
	for _, b := range m.Backends { // before the loop below: those that filters name
		if keep(b) {
			for _, name := range b.Named() {
				needed[name] = true
			}
		}
	}
	p.Backends, p.ConnectionBackends = kept(m.Backends, keep), kept(m.ConnectionBackends, keep)
	lists, users := map[policy.NetworkList]bool{}, map[string]bool{}
	for _, b := range slices.Concat(p.Backends, p.ConnectionBackends) {
		b.names(lists, users)
	}
	p.NetworkLists = kept(m.NetworkLists, func(l NetworkList) bool { return lists[l.NetworkList] })
	p.Userlists = kept(m.Userlists, func(u Userlist) bool { return users[u.Name] })
	p.ServerNames = kept(m.ServerNames, func(s ServerName) bool { return s.Origin.Object == object || hosts[hostname.Of(s.Host)] })
	for _, c := range m.Certificates { // only those that are named get into the artifact
		own := c.Origin.Object == object
		c.Hosts = kept(c.Hosts, func(host string) bool { return own || hosts[hostname.Of(host)] })
		p.Certificates = append(p.Certificates, c)
	}
	return p
}

// part returns a host with those routes whose paths an object has a route for.
func (h Host) part(object diag.Object) (Host, bool) {
	paths := map[PathMatch]bool{}
	for _, r := range h.Routes {
		if r.Origin.Object == object {
			paths[r.Match.PathMatch] = true
		}
	}
	h.Routes = kept(h.Routes, func(r Route) bool { return paths[r.Match.PathMatch] })
	h.Expressions = kept(h.Expressions, func(e ExpressionRoute) bool { return paths[PathMatch{Expression, e.Path}] })
	return h, len(paths) > 0 || h.Origin.Object == object
}

// Named returns the backends that the filters of a backend name: the one that authenticates requests, and those that get
// copies of them.
func (b Backend) Named() []string {
	var out []string
	for _, f := range b.Filters {
		switch f := f.(type) {
		case policy.ExternalAuth:
			out = append(out, f.Backend)
		case policy.Mirror:
			out = append(out, f.Backend)
		}
	}
	return out
}

// names adds the lists of networks and of users that a backend names.
func (b Backend) names(lists map[policy.NetworkList]bool, users map[string]bool) {
	add := func(n policy.Networks) {
		for _, list := range n.Lists {
			lists[list] = true
		}
	}
	if p := b.Protection; p != nil {
		add(p.Allow)
		add(p.Deny)
		if p.Rate != nil {
			add(p.Rate.Exempt)
		}
	}
	for _, f := range b.Filters {
		switch f := f.(type) {
		case policy.BasicAuth:
			users[f.Users] = true
		case policy.Guard:
			add(f.Protection.Allow)
			add(f.Protection.Deny)
		}
	}
}

// kept copies the few elements of a long list that stay, and not the list.
func kept[T any](all []T, keep func(T) bool) []T {
	var out []T
	for _, x := range all {
		if keep(x) {
			out = append(out, x)
		}
	}
	return out
}

// With joins two parts of models. It reports false if they cannot be joined, since something with the same name differs.
func (m Model) With(o Model) (Model, bool) {
	out := m
	ok := m.Default == o.Default || m.Default == "" || o.Default == ""
	out.Default, out.DefaultOrigin = cmp.Or(m.Default, o.Default), m.DefaultOrigin
	out.Countries = cmp.Or(m.Countries, o.Countries)
	if m.Default == "" {
		out.DefaultOrigin = o.DefaultOrigin
	}
	join(&out.Binds, o.Binds, func(b Bind) string { return b.Name }, joinEqual, &ok)
	join(&out.Hosts, o.Hosts, Host.Key, joinHosts, &ok)
	join(&out.Splits, o.Splits, func(s Split) string { return s.Name }, joinEqual, &ok)
	join(&out.Backends, o.Backends, backendKey, joinBackends, &ok)
	join(&out.ConnectionBackends, o.ConnectionBackends, backendKey, joinBackends, &ok)
	join(&out.Certificates, o.Certificates, func(c Certificate) string { return c.File }, joinCertificates, &ok)
	join(&out.Authorities, o.Authorities, func(a Authority) string { return a.File }, joinAuthorities, &ok)
	join(&out.Userlists, o.Userlists, func(u Userlist) string { return u.Name }, joinUserlists, &ok)
	join(&out.NetworkLists, o.NetworkLists, func(l NetworkList) string { return l.String() }, joinEqual, &ok)
	join(&out.ServerNames, o.ServerNames, func(s ServerName) string { return s.Host }, joinEqual, &ok)
	join(&out.Listeners, o.Listeners, func(l Listener) string { return l.Name }, joinListeners, &ok)
	return out, ok
}

func backendKey(b Backend) string { return b.Name }

// join merges two lists that are sorted by key. Two of one key are made one. It changes none of the lists.
func join[T any](into *[]T, others []T, key func(T) string, one func(a, b T) (T, bool), ok *bool) {
	if len(others) == 0 {
		return
	}
	a, b := *into, others
	out := make([]T, 0, len(a)+len(b))
	for *ok && len(a) > 0 && len(b) > 0 {
		switch c := strings.Compare(key(a[0]), key(b[0])); {
		case c < 0:
			out, a = append(out, a[0]), a[1:]
		case c > 0:
			out, b = append(out, b[0]), b[1:]
		default:
			both, fits := one(a[0], b[0])
			*ok = fits
			out, a, b = append(out, both), a[1:], b[1:]
		}
	}
	*into = append(append(out, a...), b...)
}

func joinEqual[T any](a, b T) (T, bool) { return a, reflect.DeepEqual(a, b) }

func joinHosts(a, b Host) (Host, bool) {
	if len(a.Expressions)+len(b.Expressions) > 0 { // they have an order
		return a, false
	}
	has := map[PathMatch]bool{}
	for _, r := range a.Routes {
		has[r.Match.PathMatch] = true
	}
	for _, r := range b.Routes {
		if has[r.Match.PathMatch] {
			return a, false
		}
	}
	a.Routes = slices.Concat(a.Routes, b.Routes)
	slices.SortStableFunc(a.Routes, func(x, y Route) int { return x.Match.Compare(y.Match.PathMatch) })
	return a, true
}

func joinBackends(a, b Backend) (Backend, bool) {
	origins, prefixes := slices.Concat(a.Origins, b.Origins), slices.Concat(a.Prefixes, b.Prefixes)
	a.Origins, b.Origins, a.Prefixes, b.Prefixes = nil, nil, nil, nil
	same := reflect.DeepEqual(a, b)
	slices.SortFunc(origins, Origin.Compare)
	slices.Sort(prefixes)
	a.Origins, a.Prefixes = slices.Compact(origins), slices.Compact(prefixes)
	return a, same
}

func joinCertificates(a, b Certificate) (Certificate, bool) {
	hosts := slices.Concat(a.Hosts, b.Hosts)
	slices.Sort(hosts)
	a.Hosts = slices.Compact(hosts)
	return a, a.Secret == b.Secret && a.Use == b.Use
}

func joinAuthorities(a, b Authority) (Authority, bool) {
	origins := slices.Concat(a.Origins, b.Origins)
	slices.SortFunc(origins, Origin.Compare)
	a.Origins = slices.Compact(origins)
	return a, bytes.Equal(a.PEM, b.PEM)
}

func joinUserlists(a, b Userlist) (Userlist, bool) {
	a.Origins = slices.Concat(a.Origins, b.Origins)
	slices.SortFunc(a.Origins, Origin.Compare)
	a.Origins = slices.Compact(a.Origins)
	return a, a.Secret == b.Secret
}

func joinListeners(a, b Listener) (Listener, bool) {
	has := map[string]bool{}
	for _, r := range a.Routes {
		has[r.SNI] = true
	}
	for _, r := range b.Routes {
		if has[r.SNI] {
			return a, false
		}
	}
	routes := slices.Concat(a.Routes, b.Routes)
	a.Routes, b.Routes = nil, nil
	same := reflect.DeepEqual(a, b)
	slices.SortFunc(routes, func(x, y ConnectionRoute) int { return cmp.Compare(x.SNI, y.SNI) })
	a.Routes = routes
	return a, same
}
