package compiler

import (
	"slices"

	networkingv1 "k8s.io/api/networking/v1"

	"github.com/hapsnap/hapsnap/compiler/inputs"
	"github.com/hapsnap/hapsnap/compiler/options"
	"github.com/hapsnap/hapsnap/compiler/routing"
)

// Most Ingresses have nothing to do with most others. What is said of one under review, and the
// part of the configuration that it brings, follow from its namespace, from those that share a
// host with it, and from those whose routes have no host: the others are not translated. Where it
// may follow from more, all are. TestScopedReviews holds that to a translation of everything.

// scope finds the namespaces that matter for a review.
type scope struct {
	byHost, below map[string][]string // namespaces with a host, and with one below a wildcard
	always        []string            // namespaces with routes or a backend for hosts of others
	ingresses     map[string][]inputs.Object[networkingv1.Ingress]
	broken        map[string][]inputs.Object[networkingv1.Ingress]
}

func newScope(in inputs.Inputs) *scope {
	s := &scope{
		byHost: map[string][]string{}, below: map[string][]string{},
		ingresses: map[string][]inputs.Object[networkingv1.Ingress]{}, broken: map[string][]inputs.Object[networkingv1.Ingress]{},
	}
	for _, ing := range in.Ingresses {
		s.ingresses[ing.Ref.Namespace] = append(s.ingresses[ing.Ref.Namespace], ing)
		s.take(ing)
	}
	for _, ing := range in.Broken {
		s.broken[ing.Ref.Namespace] = append(s.broken[ing.Ref.Namespace], ing)
		s.take(ing)
	}
	return s
}

func (s *scope) take(ing inputs.Object[networkingv1.Ingress]) {
	namespace := ing.Ref.Namespace
	add := func(list []string) []string {
		if slices.Contains(list, namespace) {
			return list
		}
		return append(list, namespace)
	}
	if ing.Value.Spec.DefaultBackend != nil {
		s.always = add(s.always)
	}
	for _, host := range routing.HostNames(ing) {
		if host == "" {
			s.always = add(s.always)
			continue
		}
		s.byHost[host] = add(s.byHost[host])
		s.below[routing.WildcardOf(host)] = add(s.below[routing.WildcardOf(host)])
	}
}

// namespaces returns those that matter for an Ingress under review.
func (s *scope) namespaces(ing inputs.Object[networkingv1.Ingress]) map[string]bool {
	out := map[string]bool{ing.Ref.Namespace: true}
	add := func(lists ...[]string) {
		for _, namespace := range slices.Concat(lists...) {
			out[namespace] = true
		}
	}
	add(s.always)
	hosts := routing.HostNames(ing)
	for _, own := range slices.Concat(s.ingresses[ing.Ref.Namespace], s.broken[ing.Ref.Namespace]) {
		hosts = append(hosts, routing.HostNames(own)...) // a limit of the namespace may be reached with it
	}
	for _, host := range hosts {
		add(s.byHost[host], s.byHost[routing.WildcardOf(host)])
		if routing.IsWildcard(host) {
			add(s.below[host])
		}
	}
	return out
}

// scoped returns what of the world matters for an Ingress under review, and whether that is less
// than all.
func (w *world) scoped(ing inputs.Object[networkingv1.Ingress]) (inputs.Inputs, bool) {
	if w.overlaid || w.scope == nil || refersFreely(ing) {
		return w.objects, false
	}
	for _, class := range w.objects.Classes {
		if class.Value.Spec.Parameters != nil {
			return w.objects, false
		}
	}
	namespaces := w.scope.namespaces(ing)
	out := w.objects
	out.Ingresses, out.Broken = nil, nil
	for namespace := range namespaces {
		out.Ingresses = append(out.Ingresses, w.scope.ingresses[namespace]...)
		out.Broken = append(out.Broken, w.scope.broken[namespace]...)
	}
	if 2*len(out.Ingresses) > len(w.objects.Ingresses) || slices.ContainsFunc(out.Ingresses, refersFreely) {
		return w.objects, false // which is translated already, or would cost as much
	}
	out.Services = ofNamespaces(out.Services, func(namespace string) bool { return namespaces[namespace] })
	return out, true
}

// refersFreely reports whether an Ingress has an option that may refer to what is of other
// namespaces, or whose use of others is counted there.
func refersFreely(ing inputs.Object[networkingv1.Ingress]) bool {
	for _, name := range []string{options.PathType, "auth-url", "snippet"} {
		if _, has := ing.Value.Annotations[options.Prefix+name]; has {
			return true
		}
	}
	return false
}

func ofNamespaces[T any](objects []inputs.Object[T], keep func(namespace string) bool) []inputs.Object[T] {
	return slices.DeleteFunc(slices.Clone(objects), func(o inputs.Object[T]) bool { return !keep(o.Ref.Namespace) })
}
