package gateways

import (
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	gatewayv1 "sigs.k8s.io/gateway-api/apis/v1"
)

// FleetOf returns the fleet that a Gateway names, as namespace/name, or "". It is always one of the Gateway's
// own namespace, so nobody can put a Gateway on the fleet of others.
func FleetOf(g *gatewayv1.Gateway) string {
	if g.Spec.Infrastructure == nil {
		return ""
	}
	ref := g.Spec.Infrastructure.ParametersRef
	if ref == nil || ref.Group != FleetGroup || ref.Kind != FleetKind {
		return ""
	}
	return g.Namespace + "/" + ref.Name
}

// AllowsSets reports whether ListenerSets of a namespace may bring listeners to a Gateway. namespaces has the
// labels of each namespace.
func AllowsSets(g *gatewayv1.Gateway, namespace string, namespaces map[string]labels.Set) bool {
	from, selector := gatewayv1.NamespacesFromNone, (*metav1.LabelSelector)(nil)
	if allowed := g.Spec.AllowedListeners; allowed != nil && allowed.Namespaces != nil {
		selector = allowed.Namespaces.Selector
		if allowed.Namespaces.From != nil {
			from = *allowed.Namespaces.From
		}
	}
	return Within(from, selector, g.Namespace, namespace, namespaces[namespace])
}

// Within reports whether a namespace with these labels is selected by an object of the namespace own.
func Within(from gatewayv1.FromNamespaces, selector *metav1.LabelSelector, own, namespace string, has labels.Set) bool {
	switch from {
	case gatewayv1.NamespacesFromAll:
		return true
	case gatewayv1.NamespacesFromSame:
		return namespace == own
	case gatewayv1.NamespacesFromSelector:
		s, err := metav1.LabelSelectorAsSelector(selector)
		return err == nil && selector != nil && s.Matches(labels.Merge(has, labels.Set{"kubernetes.io/metadata.name": namespace}))
	}
	return false
}

// ValidKey reports whether a text may be among the keys for [MayBring].
func ValidKey(key string) bool { return metadataKeys.MatchString(key) }

// MayBring reports whether a Gateway may bring a label or an annotation to an object that is made for it.
// Allowed are whole keys, "example.com/*" or "*". "*" does not include the keys with which Kubernetes, a
// cloud or hapsnap control an object.
func MayBring(key string, allowed []string) bool {
	domain, _, qualified := strings.Cut(key, "/")
	if !qualified {
		domain = ""
	}
	of := func(parent string) bool { return domain == parent || strings.HasSuffix(domain, "."+parent) }
	if of("hapsnap.dev") || of("gateway.networking.k8s.io") {
		return false
	}
	return slices.ContainsFunc(allowed, func(pattern string) bool {
		if pattern == "*" {
			return !of("kubernetes.io") && !of("k8s.io")
		}
		if prefix, wide := strings.CutSuffix(pattern, "*"); wide {
			return strings.HasPrefix(key, prefix)
		}
		return pattern == key
	})
}
