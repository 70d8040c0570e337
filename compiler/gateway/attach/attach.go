// Package attach decides what may attach to what in the Gateway API: listeners to ports, routes to
// listeners, and references to objects of other namespaces. It is pure, and knows nothing of what
// routes do with requests.
package attach

import (
	"cmp"
	"fmt"
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	gatewayv1 "sigs.k8s.io/gateway-api/apis/v1"

	"github.com/hapsnap/hapsnap/compiler/gateway/layout"
	"github.com/hapsnap/hapsnap/compiler/inputs"
	"github.com/hapsnap/hapsnap/compiler/routing"
	"github.com/hapsnap/hapsnap/compiler/routing/hostname"
)

// Group is that of the Gateway API.
const Group = "gateway.networking.k8s.io"

// Gateway is a Gateway of ours with its listeners.
type Gateway struct {
	inputs.Object[gatewayv1.Gateway]
	Listeners []*Listener
	// Refused says why none of the listeners serves.
	Refused Verdict
}

// Listener is a listener of a Gateway. Accepted and Resolved are false where it serves nothing.
type Listener struct {
	Spec   gatewayv1.Listener
	Index  int
	Host   string // as in a routing.Host
	Origin routing.Origin
	// Kinds are the kinds of routes that may attach.
	Kinds []string
	// Accepted, Conflicted and Resolved are what its conditions say.
	Accepted, Conflicted, Resolved Verdict
	// Certificates are those that clients may get, by file; none that may not be referred to.
	Certificates []routing.Certificate
	// Attached counts the routes that are attached.
	Attached int

	hosts   map[string][]string // of the routes that are attached, by kind
	gateway *Gateway
}

// Verdict is what a condition says: with a Reason, why something is not so.
type Verdict struct{ Reason, Message string }

// Fine reports whether there is nothing to say.
func (v Verdict) Fine() bool { return v.Reason == "" }

func unless[T ~string](v Verdict, reason T, format string, args ...any) Verdict {
	if !v.Fine() {
		return v
	}
	return Verdict{string(reason), fmt.Sprintf(format, args...)}
}

// Serves reports whether the listener takes requests.
func (l *Listener) Serves() bool {
	return l.gateway.Refused.Fine() && l.Accepted.Fine() && l.Conflicted.Fine() && len(l.Kinds) > 0
}

// kindsOf are the kinds of routes that a protocol may have.
var kindsOf = map[gatewayv1.ProtocolType][]string{
	gatewayv1.HTTPProtocolType:  {"HTTPRoute", "GRPCRoute"},
	gatewayv1.HTTPSProtocolType: {"HTTPRoute", "GRPCRoute"},
}

// NewGateway returns a Gateway whose listeners are judged by themselves and among each other.
func NewGateway(o inputs.Object[gatewayv1.Gateway]) *Gateway {
	g := &Gateway{Object: o}
	names := map[gatewayv1.SectionName]bool{}
	for i, spec := range o.Value.Spec.Listeners {
		l := &Listener{gateway: g, Spec: spec, Index: i, Origin: routing.Origin{Object: o.Ref, Position: o.Position("spec", "listeners", i), Field: fmt.Sprintf("spec.listeners[%d]", i)}}
		if spec.Hostname != nil {
			l.Host = hostname.Of(string(*spec.Hostname))
			if message, _ := hostname.Check(hostname.Normal(string(*spec.Hostname))); message != "" && *spec.Hostname != "" {
				l.Accepted = unless(l.Accepted, gatewayv1.ListenerReasonUnsupportedValue, "hostname %q %s", *spec.Hostname, message)
			}
		}
		if names[spec.Name] {
			l.Accepted = unless(l.Accepted, gatewayv1.ListenerReasonUnsupportedValue, "another listener has the name %q", spec.Name)
		}
		names[spec.Name] = true
		l.kinds()
		if kindsOf[spec.Protocol] == nil {
			l.Accepted = unless(l.Accepted, gatewayv1.ListenerReasonUnsupportedProtocol, "protocol %q is not supported", spec.Protocol)
		}
		if spec.Port < 1 || spec.Port > 65535 {
			l.Accepted = unless(l.Accepted, gatewayv1.ListenerReasonPortUnavailable, "there is no port %d", spec.Port)
		}
		l.tls()
		g.Listeners = append(g.Listeners, l)
	}
	g.conflicts()
	return g
}

// tls judges what a listener says of TLS, but for the certificates.
func (l *Listener) tls() {
	tls := l.Spec.TLS
	switch {
	case l.Spec.Protocol == gatewayv1.HTTPProtocolType && tls != nil:
		l.Accepted = unless(l.Accepted, gatewayv1.ListenerReasonUnsupportedValue, "a listener of the protocol HTTP has no TLS")
	case l.Spec.Protocol != gatewayv1.HTTPSProtocolType:
	case tls == nil || len(tls.CertificateRefs) == 0:
		l.Accepted = unless(l.Accepted, gatewayv1.ListenerReasonUnsupportedValue, "a listener of the protocol HTTPS needs a certificate")
	case tls.Mode != nil && *tls.Mode != gatewayv1.TLSModeTerminate:
		l.Accepted = unless(l.Accepted, gatewayv1.ListenerReasonUnsupportedValue, "TLS of the mode %s is not supported", *tls.Mode)
	case len(tls.Options) > 0:
		l.Accepted = unless(l.Accepted, gatewayv1.ListenerReasonUnsupportedValue, "options of TLS are not supported")
	}
}

// kinds finds out which kinds of routes may attach.
func (l *Listener) kinds() {
	all := kindsOf[l.Spec.Protocol]
	if l.Spec.AllowedRoutes == nil || len(l.Spec.AllowedRoutes.Kinds) == 0 {
		l.Kinds = all
		return
	}
	for _, k := range l.Spec.AllowedRoutes.Kinds {
		if (k.Group != nil && *k.Group != Group) || !slices.Contains(all, string(k.Kind)) {
			l.Resolved = unless(l.Resolved, gatewayv1.ListenerReasonInvalidRouteKinds, "routes of the kind %s cannot attach to a listener of the protocol %s", k.Kind, l.Spec.Protocol)
		} else if !slices.Contains(l.Kinds, string(k.Kind)) {
			l.Kinds = append(l.Kinds, string(k.Kind))
		}
	}
}

// conflicts finds listeners of one port that cannot be together. None of them serves.
func (g *Gateway) conflicts() {
	for _, a := range g.Listeners {
		for _, b := range g.Listeners {
			switch {
			case a == b || a.Spec.Port != b.Spec.Port || !a.Accepted.Fine() || !b.Accepted.Fine():
			case a.Spec.Protocol != b.Spec.Protocol:
				a.Conflicted = unless(a.Conflicted, gatewayv1.ListenerReasonProtocolConflict, "listener %s has the same port and another protocol", b.Spec.Name)
			case a.Host == b.Host:
				a.Conflicted = unless(a.Conflicted, gatewayv1.ListenerReasonHostnameConflict, "listener %s has the same port and hostname", b.Spec.Name)
			}
		}
	}
}

// Ports returns the ports of listeners that serve, sorted.
func (g *Gateway) Ports() []int {
	var out []int
	for _, l := range g.Listeners {
		if l.Serves() {
			out = append(out, int(l.Spec.Port))
		}
	}
	slices.Sort(out)
	return slices.Compact(out)
}

// Route is what attaches to listeners.
type Route struct {
	Kind, Namespace string
	// Hosts are named as in a routing.Host; none stands for all.
	Hosts []string
}

// Attachment is a listener that a route is attached to, with the hosts that both take.
type Attachment struct {
	Gateway  *Gateway
	Listener *Listener
	Hosts    []string // the most specific first
}

// World is what decides about references.
type World struct {
	Gateways   []*Gateway
	Namespaces map[string]labels.Set
	Grants     []inputs.Object[gatewayv1.ReferenceGrant]
}

// Parent returns the Gateway of ours that a route of a namespace names, or nil.
func (w World) Parent(namespace string, ref gatewayv1.ParentReference) *Gateway {
	if (ref.Group != nil && *ref.Group != Group) || (ref.Kind != nil && *ref.Kind != "Gateway") {
		return nil
	}
	if ref.Namespace != nil {
		namespace = string(*ref.Namespace)
	}
	i := slices.IndexFunc(w.Gateways, func(g *Gateway) bool { return g.Ref.Namespace == namespace && g.Ref.Name == string(ref.Name) })
	if i < 0 {
		return nil
	}
	return w.Gateways[i]
}

// Attach returns the listeners of a Gateway that a route is attached to by one of its references, or
// else why there are none. One listener that takes the route is enough.
func (w World) Attach(g *Gateway, ref gatewayv1.ParentReference, r Route) ([]Attachment, Verdict) {
	var out []Attachment
	named, allowed := false, false
	for _, l := range g.Listeners {
		if (ref.SectionName != nil && *ref.SectionName != l.Spec.Name) || (ref.Port != nil && *ref.Port != l.Spec.Port) {
			continue
		}
		named = true
		if !slices.Contains(l.Kinds, r.Kind) || !w.allows(g, l, r.Namespace) {
			continue
		}
		allowed = true
		if hosts := common(l.Host, r.Hosts); len(hosts) > 0 {
			out = append(out, Attachment{g, l, hosts})
		}
	}
	switch {
	case len(out) > 0:
		return out, Verdict{}
	case !named:
		return nil, unless(Verdict{}, gatewayv1.RouteReasonNoMatchingParent, "the Gateway has no listener with this name and port")
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
			a.Listener.hosts = map[string][]string{}
		}
		a.Listener.hosts[r.Kind] = append(a.Listener.hosts[r.Kind], a.Hosts...)
	}
	return out, Verdict{}
}

// contended reports whether routes of another kind have one of some hosts.
func (l *Listener) contended(hosts []string, kind string) bool {
	for other, theirs := range l.hosts {
		if other == kind {
			continue
		}
		for _, h := range theirs {
			if slices.ContainsFunc(hosts, func(mine string) bool { _, both := layout.Common(mine, h); return both }) {
				return true
			}
		}
	}
	return false
}

// allows reports whether routes of a namespace may attach to a listener.
func (w World) allows(g *Gateway, l *Listener, namespace string) bool {
	from, selector := gatewayv1.NamespacesFromSame, (*metav1.LabelSelector)(nil)
	if l.Spec.AllowedRoutes != nil && l.Spec.AllowedRoutes.Namespaces != nil {
		selector = l.Spec.AllowedRoutes.Namespaces.Selector
		if f := l.Spec.AllowedRoutes.Namespaces.From; f != nil {
			from = *f
		}
	}
	switch from {
	case gatewayv1.NamespacesFromAll:
		return true
	case gatewayv1.NamespacesFromSame:
		return namespace == g.Ref.Namespace
	case gatewayv1.NamespacesFromSelector:
		s, err := metav1.LabelSelectorAsSelector(selector)
		return err == nil && selector != nil && s.Matches(labels.Merge(w.Namespaces[namespace], labels.Set{"kubernetes.io/metadata.name": namespace}))
	}
	return false
}

// common returns the hosts that a listener and a route take.
func common(listener string, hosts []string) []string {
	if len(hosts) == 0 {
		return []string{listener}
	}
	var out []string
	for _, h := range hosts {
		if both, ok := layout.Common(listener, h); ok {
			out = append(out, both)
		}
	}
	slices.SortFunc(out, func(a, b string) int { return cmp.Or(cmp.Compare(len(b), len(a)), cmp.Compare(a, b)) })
	return slices.Compact(out)
}

// Reference names an object that another one refers to.
type Reference struct{ Group, Kind, Namespace, Name string }

// ReferenceOf returns a reference of an object in a namespace. What it does not say is the core group, a
// kind and the same namespace.
func ReferenceOf(defaultKind, from string, group *gatewayv1.Group, kind *gatewayv1.Kind, namespace *gatewayv1.Namespace, name gatewayv1.ObjectName) Reference {
	out := Reference{Kind: defaultKind, Namespace: from, Name: string(name)}
	if group != nil {
		out.Group = string(*group)
	}
	if kind != nil {
		out.Kind = string(*kind)
	}
	if namespace != nil {
		out.Namespace = string(*namespace)
	}
	return out
}

// Certify finds the certificates of the listeners of a Gateway. Of finds that of a Secret, and says why
// there is none now: the listener then refers to it all the same.
func (w World) Certify(g *Gateway, of func(name, namespace string, origin routing.Origin) (routing.Certificate, string)) {
	for _, l := range g.Listeners {
		if l.Spec.TLS == nil || !l.Accepted.Fine() {
			continue
		}
		for i, ref := range l.Spec.TLS.CertificateRefs {
			to := ReferenceOf("Secret", g.Ref.Namespace, ref.Group, ref.Kind, ref.Namespace, ref.Name)
			if to.Group != "" || to.Kind != "Secret" {
				l.Resolved = unless(l.Resolved, gatewayv1.ListenerReasonInvalidCertificateRef, "a certificate is in a Secret, and not in a %s", to.Kind)
				continue
			}
			if !w.Permitted("Gateway", g.Ref.Namespace, to) {
				l.Resolved = unless(l.Resolved, gatewayv1.ListenerReasonRefNotPermitted, "no ReferenceGrant of the namespace %s permits the reference to Secret %s/%s", to.Namespace, to.Namespace, to.Name)
				continue
			}
			origin := routing.Origin{
				Object: g.Ref, Position: g.Position("spec", "listeners", l.Index, "tls", "certificateRefs", i),
				Field: fmt.Sprintf("spec.listeners[%d].tls.certificateRefs[%d]", l.Index, i),
			}
			certificate, why := of(to.Name, to.Namespace, origin)
			if why != "" {
				l.Resolved = unless(l.Resolved, gatewayv1.ListenerReasonInvalidCertificateRef, "Secret %s/%s %s", to.Namespace, to.Name, why)
			}
			l.Certificates = append(l.Certificates, certificate)
		}
	}
}

// Permitted reports whether objects of a kind of the Gateway API in a namespace may refer to an object:
// one of the same namespace, or one that a ReferenceGrant there names.
func (w World) Permitted(kind, namespace string, to Reference) bool {
	if to.Namespace == namespace {
		return true
	}
	return slices.ContainsFunc(w.Grants, func(g inputs.Object[gatewayv1.ReferenceGrant]) bool {
		return g.Ref.Namespace == to.Namespace &&
			slices.ContainsFunc(g.Value.Spec.From, func(f gatewayv1.ReferenceGrantFrom) bool {
				return f.Group == Group && string(f.Kind) == kind && string(f.Namespace) == namespace
			}) &&
			slices.ContainsFunc(g.Value.Spec.To, func(t gatewayv1.ReferenceGrantTo) bool {
				return string(t.Group) == to.Group && string(t.Kind) == to.Kind && (t.Name == nil || *t.Name == "" || string(*t.Name) == to.Name)
			})
	})
}
