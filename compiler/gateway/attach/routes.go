package attach

import (
	"cmp"
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	gatewayv1 "sigs.k8s.io/gateway-api/apis/v1"

	"github.com/hapsnap/hapsnap/compiler/config/gateways"
	"github.com/hapsnap/hapsnap/compiler/diag"
	"github.com/hapsnap/hapsnap/compiler/gateway/layout"
)

// Route is what attaches to listeners.
type Route struct {
	Kind, Namespace string
	// Hosts are named as in a routing.Host; none stands for all.
	Hosts []string
}

// Attachment is a listener that a route is attached to, with the hosts that both take.
type Attachment struct {
	Listener *Listener
	Hosts    []Host // the most specific first
}

// Host is a host that a listener and a route both take. Of is the hostname of the route that says so, the
// most specific one, or "" if the route has none.
type Host struct{ Name, Of string }

// Allows reports whether ListenerSets of a namespace may bring listeners.
func (w *World) Allows(g *Gateway, namespace string) bool {
	return gateways.AllowsSets(g.Value, namespace, w.Namespaces)
}

// Parent returns the Gateway of ours, or ListenerSet for one, that a route of a namespace names, or nil.
func (w *World) Parent(namespace string, ref gatewayv1.ParentReference) *Owner {
	kind := "Gateway"
	if ref.Kind != nil {
		kind = string(*ref.Kind)
	}
	if ref.Group != nil && *ref.Group != Group {
		return nil
	}
	if ref.Namespace != nil {
		namespace = string(*ref.Namespace)
	}
	by := diag.Object{Kind: kind, Namespace: namespace, Name: string(ref.Name)}
	return w.owners[by]
}

// Attach returns the listeners of a Gateway or ListenerSet that a route is attached to by one of its
// references, or else why there are none. One listener that takes the route is enough.
func (w *World) Attach(o *Owner, ref gatewayv1.ParentReference, r Route) ([]Attachment, Verdict) {
	var out []Attachment
	named, allowed := false, false
	for _, l := range o.Listeners {
		if (ref.SectionName != nil && *ref.SectionName != l.Spec.Name) || (ref.Port != nil && *ref.Port != l.Spec.Port) {
			continue
		}
		named = true
		if !slices.Contains(l.Kinds, r.Kind) || !w.allows(l, r.Namespace) {
			continue
		}
		allowed = true
		if hosts := common(l.Host, r.Hosts); len(hosts) > 0 {
			out = append(out, Attachment{l, hosts})
		}
	}
	switch {
	case len(out) > 0:
		return out, Verdict{}
	case !named:
		return nil, unless(Verdict{}, gatewayv1.RouteReasonNoMatchingParent, "there is no listener with this name and port")
	case !allowed:
		return nil, unless(Verdict{}, gatewayv1.RouteReasonNotAllowedByListeners, "no listener allows routes of this kind from the namespace %s", r.Namespace)
	}
	return nil, unless(Verdict{}, gatewayv1.RouteReasonNoMatchingListenerHostname, "no listener takes requests for a host of the route")
}

// Settle attaches a route, and returns the attachments that it has. A listener has no routes of two kinds
// for one host: the route that comes first has it.
func Settle(attachments []Attachment, r Route) ([]Attachment, Verdict) {
	var out []Attachment
	for _, a := range attachments {
		if !a.Listener.contended(a.Hosts, r.Kind) {
			out = append(out, a)
		}
	}
	if len(out) == 0 {
		return nil, Verdict{"HostnameConflict", "an older route of another kind has a host of this one"}
	}
	for _, a := range out {
		if a.Listener.hosts == nil {
			a.Listener.hosts = map[string]*layout.HostSet{}
		}
		if a.Listener.hosts[r.Kind] == nil {
			a.Listener.hosts[r.Kind] = &layout.HostSet{}
		}
		for _, h := range a.Hosts {
			a.Listener.hosts[r.Kind].Add(h.Name)
		}
	}
	return out, Verdict{}
}

// contended reports whether routes of another kind have one of some hosts.
func (l *Listener) contended(hosts []Host, kind string) bool {
	for other, theirs := range l.hosts {
		if other != kind && slices.ContainsFunc(hosts, func(mine Host) bool { return theirs.Overlaps(mine.Name) }) {
			return true
		}
	}
	return false
}

// allows reports whether routes of a namespace may attach to a listener.
func (w *World) allows(l *Listener, namespace string) bool {
	from, selector := gatewayv1.NamespacesFromSame, (*metav1.LabelSelector)(nil)
	if l.Spec.AllowedRoutes != nil && l.Spec.AllowedRoutes.Namespaces != nil {
		selector = l.Spec.AllowedRoutes.Namespaces.Selector
		if f := l.Spec.AllowedRoutes.Namespaces.From; f != nil {
			from = *f
		}
	}
	return gateways.Within(from, selector, l.Owner.By.Namespace, namespace, w.Namespaces[namespace])
}

// common returns the hosts that a listener and a route take.
func common(listener string, hosts []string) []Host {
	if len(hosts) == 0 {
		return []Host{{Name: listener}}
	}
	var out []Host
	for _, h := range hosts {
		if both, ok := layout.Common(listener, h); ok {
			out = append(out, Host{both, h})
		}
	}
	slices.SortFunc(out, func(a, b Host) int {
		return cmp.Or(cmp.Compare(len(b.Name), len(a.Name)), cmp.Compare(a.Name, b.Name), layout.MoreSpecific(a.Of, b.Of))
	})
	return slices.CompactFunc(out, func(a, b Host) bool { return a.Name == b.Name })
}
