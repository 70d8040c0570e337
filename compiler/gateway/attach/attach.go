// Package attach decides what may attach to what in the Gateway API: listeners to ports, routes to
// listeners, and references to objects of other namespaces. It is pure, and knows nothing of what
// routes do with requests.
package attach

import (
	"cmp"
	"fmt"
	"slices"

	"k8s.io/apimachinery/pkg/labels"
	gatewayv1 "sigs.k8s.io/gateway-api/apis/v1"

	"github.com/hapsnap/hapsnap/compiler/diag"
	"github.com/hapsnap/hapsnap/compiler/gateway/layout"
	"github.com/hapsnap/hapsnap/compiler/inputs"
	"github.com/hapsnap/hapsnap/compiler/routing"
	"github.com/hapsnap/hapsnap/compiler/routing/hostname"
	"github.com/hapsnap/hapsnap/internal/manifests"
)

// Group is that of the Gateway API.
const Group = "gateway.networking.k8s.io"

// Gateway is a Gateway of ours with its listeners, and the ListenerSets that bring more.
type Gateway struct {
	inputs.Object[gatewayv1.Gateway]
	Owner
	Sets []*Set
	// Addresses are those that are the Gateway's own; none if it shares those of all.
	Addresses []string
	// Unplaced says why it has no address, and is not served.
	Unplaced Verdict
	// Shown is the file of the certificate that servers are shown over TLS, or "". Resolved says why the
	// reference to it leads to nothing.
	Shown    string
	Resolved Verdict
}

// Set is a ListenerSet for a Gateway of ours.
type Set struct {
	inputs.Object[gatewayv1.ListenerSet]
	Owner
	// Gateway is the one that the listeners are for.
	Gateway *Gateway
}

// Owner has listeners: it is a Gateway or a ListenerSet.
type Owner struct {
	By        diag.Object
	Listeners []*Listener
	// Refused says why none of the listeners serves.
	Refused Verdict

	at func(path ...any) diag.Position
}

// Listener is a listener of a Gateway or a ListenerSet.
type Listener struct {
	Owner   *Owner
	Gateway *Gateway
	Spec    gatewayv1.Listener
	Index   int
	Host    string // as in a routing.Host
	Origin  routing.Origin
	// Kinds are the kinds of routes that may attach.
	Kinds []string
	// Accepted, Conflicted and Resolved are what its conditions say.
	Accepted, Conflicted, Resolved Verdict
	// Certificates are those that clients may get, by file; none that may not be referred to.
	Certificates []routing.Certificate
	// Clients is nil where clients are not asked for certificates.
	Clients *routing.ClientCheck
	// Attached counts the routes that are attached.
	Attached int

	hosts map[string]*layout.HostSet // of the routes that are attached, by kind
}

// Name tells the listener from others of its Gateway.
func (l *Listener) Name() string {
	if l.Owner == &l.Gateway.Owner {
		return string(l.Spec.Name)
	}
	return fmt.Sprintf("%s/%s/%s", l.Owner.By.Namespace, l.Owner.By.Name, l.Spec.Name)
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
func (l *Listener) Serves() bool { return l.Valid() && l.Gateway.Unplaced.Fine() }

// Valid reports whether it would, if its Gateway had an address.
func (l *Listener) Valid() bool {
	return l.Gateway.Refused.Fine() && l.Owner.Refused.Fine() && l.Accepted.Fine() && l.Conflicted.Fine() && len(l.Kinds) > 0 &&
		(!l.EndsTLS() || len(l.Certificates) > 0)
}

// KeepsPort reports whether the port belongs to the listener: it serves, or only certificates or authorities are missing.
// These may come back, and no other listener should answer meanwhile.
func (l *Listener) KeepsPort() bool {
	lacking := l.EndsTLS() && (l.Accepted.Fine() || l.Accepted.Reason == string(gatewayv1.ListenerReasonNoValidCACertificate))
	return l.Serves() || lacking && l.Gateway.Refused.Fine() && l.Owner.Refused.Fine() && l.Gateway.Unplaced.Fine() && l.Conflicted.Fine() && len(l.Kinds) > 0
}

// EndsTLS reports whether TLS ends at the listener, so that it needs a certificate.
func (l *Listener) EndsTLS() bool {
	return l.Spec.Protocol == gatewayv1.HTTPSProtocolType || l.Spec.Protocol == gatewayv1.TLSProtocolType && !l.PassesOn()
}

// PassesOn reports whether TLS connections are passed on as they are.
func (l *Listener) PassesOn() bool {
	return l.Spec.Protocol == gatewayv1.TLSProtocolType && l.Spec.TLS != nil && l.Spec.TLS.Mode != nil && *l.Spec.TLS.Mode == gatewayv1.TLSModePassthrough
}

// RoutesConnections reports whether connections are routed as wholes, without a look at requests.
func (l *Listener) RoutesConnections() bool {
	return l.Spec.Protocol == gatewayv1.TLSProtocolType || l.Spec.Protocol == gatewayv1.TCPProtocolType
}

// kindsOf are the kinds of routes that a protocol may have.
var kindsOf = map[gatewayv1.ProtocolType][]string{
	gatewayv1.HTTPProtocolType:  {"HTTPRoute", "GRPCRoute"},
	gatewayv1.HTTPSProtocolType: {"HTTPRoute", "GRPCRoute"},
	gatewayv1.TLSProtocolType:   {"TLSRoute"},
	gatewayv1.TCPProtocolType:   {"TCPRoute"},
}

// NewGateway returns a Gateway with its ListenerSets, in the order in which they win. Their listeners are
// judged by themselves; [Gateway.Judge] does so among each other.
func NewGateway(o inputs.Object[gatewayv1.Gateway], sets ...inputs.Object[gatewayv1.ListenerSet]) *Gateway {
	g := &Gateway{Object: o, Owner: Owner{By: o.Ref, at: o.Position}}
	g.add(g, o.Value.Spec.Listeners)
	for _, set := range sets {
		s := &Set{Object: set, Owner: Owner{By: set.Ref, at: set.Position}, Gateway: g}
		var listeners []gatewayv1.Listener
		for _, entry := range set.Value.Spec.Listeners {
			listeners = append(listeners, gatewayv1.Listener(entry))
		}
		s.add(g, listeners)
		g.Sets = append(g.Sets, s)
	}
	return g
}

// Judge finds the listeners that cannot be together. Those of sets that were refused are in nobody's way.
func (g *Gateway) Judge() {
	before := rivals{}
	g.conflicts()
	before.add(g.Listeners)
	for _, s := range g.Sets {
		if s.Refused.Fine() {
			for _, l := range s.Listeners { // those of others were there before
				before.judge(l)
			}
			s.conflicts()
			before.add(s.Listeners)
		}
	}
}

// All returns the listeners of a Gateway and of its ListenerSets.
func (g *Gateway) All() []*Listener {
	out := slices.Clone(g.Listeners)
	for _, s := range g.Sets {
		out = append(out, s.Listeners...)
	}
	return out
}

// add judges listeners by themselves.
func (o *Owner) add(g *Gateway, listeners []gatewayv1.Listener) {
	names := map[gatewayv1.SectionName]bool{}
	for i, spec := range listeners {
		l := &Listener{Owner: o, Gateway: g, Spec: spec, Index: i, Origin: o.origin("spec", "listeners", i)}
		if spec.Hostname != nil && *spec.Hostname != "" {
			l.Host = hostname.Of(string(*spec.Hostname))
			if message, _ := hostname.Check(hostname.Normal(string(*spec.Hostname))); message != "" {
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
		o.Listeners = append(o.Listeners, l)
	}
}

// origin is a place in the object.
func (o *Owner) origin(path ...any) routing.Origin {
	return routing.Origin{Object: o.By, Position: o.at(path...), Field: manifests.FieldPath(path)}
}

// tls checks the TLS settings of a listener, except the certificates.
func (l *Listener) tls() {
	tls := l.Spec.TLS
	refuse := func(format string, args ...any) {
		l.Accepted = unless(l.Accepted, gatewayv1.ListenerReasonUnsupportedValue, format, args...)
	}
	switch l.Spec.Protocol {
	case gatewayv1.TCPProtocolType:
		if l.Spec.Hostname != nil && *l.Spec.Hostname != "" {
			refuse("a listener of the protocol TCP has no hostname")
		}
		fallthrough
	case gatewayv1.HTTPProtocolType:
		if tls != nil {
			refuse("a listener of the protocol %s has no TLS", l.Spec.Protocol)
		}
	case gatewayv1.HTTPSProtocolType, gatewayv1.TLSProtocolType:
		mode := gatewayv1.TLSModeTerminate
		if tls != nil && tls.Mode != nil {
			mode = *tls.Mode
		}
		switch {
		case mode == gatewayv1.TLSModePassthrough && l.Spec.Protocol == gatewayv1.TLSProtocolType: // certificates are ignored
		case mode != gatewayv1.TLSModeTerminate:
			refuse("TLS of the mode %s is not supported", mode)
		case tls == nil || len(tls.CertificateRefs) == 0:
			refuse("a listener of the protocol %s needs a certificate", l.Spec.Protocol)
		}
		if tls != nil && len(tls.Options) > 0 {
			refuse("options of TLS are not supported")
		}
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

// conflicts finds listeners of one port that exclude each other. None of them serves. A listener that yields to that of
// another owner causes no conflict.
func (o *Owner) conflicts() {
	among := rivals{}
	among.add(o.Listeners)
	for _, l := range o.Listeners {
		if l.Conflicted.Fine() {
			among.judge(l)
		}
	}
}

// rivals finds the first listener that another one cannot be together with, without a look at all of them: Gateways and
// ListenerSets may bring tens of thousands. It has the first two of each protocol and of each hostname of a port, so that
// one of them is not the other one itself.
type rivals map[rivalKey][]rival

// rivalKey has a protocol, or else a host.
type rivalKey struct {
	port     gatewayv1.PortNumber
	protocol gatewayv1.ProtocolType
	host     string
}

// rival is a listener, and how many of its port were there before.
type rival struct {
	*Listener
	order int
}

// add adds the listeners that have no conflict so far.
func (r rivals) add(listeners []*Listener) {
	for _, l := range listeners {
		if !l.Accepted.Fine() || !l.Conflicted.Fine() {
			continue
		}
		all := rivalKey{port: l.Spec.Port, protocol: "*"}
		order := 0
		if last := r[all]; len(last) > 0 {
			order = last[0].order + 1
		}
		r[all] = []rival{{l, order}}
		for _, key := range []rivalKey{{port: l.Spec.Port, protocol: l.Spec.Protocol}, {port: l.Spec.Port, host: l.Host}} {
			if len(r[key]) < 2 {
				r[key] = append(r[key], rival{l, order})
			}
		}
	}
}

// judge finds out whether a listener has a conflict.
func (r rivals) judge(l *Listener) {
	var first rival
	consider := func(key rivalKey) {
		for _, other := range r[key] {
			if other.Listener != l && (first.Listener == nil || other.order < first.order) {
				first = other
			}
		}
	}
	consider(rivalKey{port: l.Spec.Port, host: l.Host})
	for protocol := range kindsOf {
		if !together(l.Spec.Protocol, protocol) {
			consider(rivalKey{port: l.Spec.Port, protocol: protocol})
		}
	}
	if first.Listener != nil {
		l.conflict(first.Listener)
	}
}

func (l *Listener) conflict(o *Listener) {
	switch {
	case l.Spec.Port != o.Spec.Port || !l.Accepted.Fine() || !o.Accepted.Fine():
	case !together(l.Spec.Protocol, o.Spec.Protocol):
		l.Conflicted = unless(l.Conflicted, gatewayv1.ListenerReasonProtocolConflict, "listener %s has the same port and another protocol", o.Name())
	case l.Host == o.Host:
		l.Conflicted = unless(l.Conflicted, gatewayv1.ListenerReasonHostnameConflict, "listener %s has the same port and hostname", o.Name())
	}
}

// together reports whether listeners of two protocols can have one port. What TLS asks for tells those of
// HTTPS and TLS apart.
func together(a, b gatewayv1.ProtocolType) bool {
	encrypted := func(p gatewayv1.ProtocolType) bool {
		return p == gatewayv1.HTTPSProtocolType || p == gatewayv1.TLSProtocolType
	}
	return a == b || encrypted(a) && encrypted(b)
}

// Ports returns the ports of listeners that serve, sorted.
func (g *Gateway) Ports() []int {
	var out []int
	for _, l := range g.All() {
		if l.Serves() {
			out = append(out, int(l.Spec.Port))
		}
	}
	slices.Sort(out)
	return slices.Compact(out)
}

// World is what decides about references.
type World struct {
	Gateways   []*Gateway
	Namespaces map[string]labels.Set
	Grants     []inputs.Object[gatewayv1.ReferenceGrant]

	owners  map[diag.Object]*Owner
	granted granted
}

// Add adds a Gateway with its ListenerSets.
func (w *World) Add(g *Gateway) {
	if w.owners == nil {
		w.owners = map[diag.Object]*Owner{}
	}
	w.Gateways = append(w.Gateways, g)
	w.owners[g.By] = &g.Owner
	for _, s := range g.Sets {
		w.owners[s.By] = &s.Owner
	}
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

// Certify finds the certificates of listeners. Of returns the certificate of a Secret, and says why there is none now: the
// listener then still refers to it.
func (w *World) Certify(listeners []*Listener, of func(name, namespace string, origin routing.Origin) (routing.Certificate, string)) {
	for _, l := range listeners {
		if l.Spec.TLS == nil || l.PassesOn() || !l.Accepted.Fine() {
			continue
		}
		own := l.Owner.By
		for i, ref := range l.Spec.TLS.CertificateRefs {
			to := ReferenceOf("Secret", own.Namespace, ref.Group, ref.Kind, ref.Namespace, ref.Name)
			if to.Group != "" || to.Kind != "Secret" {
				l.Resolved = unless(l.Resolved, gatewayv1.ListenerReasonInvalidCertificateRef, "a certificate is in a Secret, and not in a %s", cmp.Or(to.Group, "core")+"/"+to.Kind)
				continue
			}
			if !w.Permitted(own.Kind, own.Namespace, to) {
				l.Resolved = unless(l.Resolved, gatewayv1.ListenerReasonRefNotPermitted, "no ReferenceGrant of the namespace %s permits the reference to Secret %s/%s", to.Namespace, to.Namespace, to.Name)
				continue
			}
			origin := l.Owner.origin("spec", "listeners", l.Index, "tls", "certificateRefs", i)
			certificate, why := of(to.Name, to.Namespace, origin)
			if why != "" {
				l.Resolved = unless(l.Resolved, gatewayv1.ListenerReasonInvalidCertificateRef, "Secret %s/%s %s", to.Namespace, to.Name, why)
			}
			l.Certificates = append(l.Certificates, certificate)
		}
	}
}

// Permitted reports whether objects of a kind of the Gateway API in a namespace may refer to an object: it is in the same
// namespace, or a ReferenceGrant in its namespace permits it.
func (w *World) Permitted(kind, namespace string, to Reference) bool {
	if to.Namespace == namespace {
		return true
	}
	if w.granted.from == nil {
		w.granted = grantedBy(w.Grants)
	}
	names := w.granted.to(grantKey{to.Namespace, kind, namespace})
	ofKind := Reference{Group: to.Group, Kind: to.Kind, Namespace: to.Namespace}
	return names[ofKind] || names[to]
}

// granted finds the grants of a reference without a look at all of them. Some namespace may have tens of thousands.
type granted struct {
	from map[grantKey][]*gatewayv1.ReferenceGrant
	// names are what some may refer to, once somebody asked; all objects of a kind if there is no name.
	names map[grantKey]map[Reference]bool
}

// grantKey is who may refer to objects of a namespace: objects of a kind and a namespace.
type grantKey struct{ in, kind, namespace string }

func grantedBy(grants []inputs.Object[gatewayv1.ReferenceGrant]) granted {
	out := granted{map[grantKey][]*gatewayv1.ReferenceGrant{}, map[grantKey]map[Reference]bool{}}
	for _, g := range grants {
		for _, f := range g.Value.Spec.From {
			if f.Group == Group {
				key := grantKey{g.Ref.Namespace, string(f.Kind), string(f.Namespace)}
				out.from[key] = append(out.from[key], g.Value)
			}
		}
	}
	return out
}

// to returns what some may refer to.
func (g granted) to(from grantKey) map[Reference]bool {
	if known, is := g.names[from]; is || g.from[from] == nil {
		return known
	}
	names := map[Reference]bool{}
	for _, grant := range g.from[from] {
		for _, t := range grant.Spec.To {
			to := Reference{Group: string(t.Group), Kind: string(t.Kind), Namespace: from.in}
			if t.Name != nil {
				to.Name = string(*t.Name)
			}
			names[to] = true
		}
	}
	g.names[from] = names
	return names
}
