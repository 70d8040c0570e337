package gateway

import (
	"cmp"
	"fmt"
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	gatewayv1 "sigs.k8s.io/gateway-api/apis/v1"

	"github.com/hapsnap/hapsnap/compiler/diag"
	"github.com/hapsnap/hapsnap/compiler/gateway/attach"
	"github.com/hapsnap/hapsnap/compiler/gateway/layout"
	"github.com/hapsnap/hapsnap/compiler/inputs"
	"github.com/hapsnap/hapsnap/compiler/options"
	"github.com/hapsnap/hapsnap/compiler/routing"
)

// closing is the backend for connections whose own backend cannot be used. It has no servers, so connections are
// closed.
const closing = "hapsnap_unavailable:tcp"

func connectionRoute[T any](o inputs.Object[T], meta metav1.ObjectMeta, common gatewayv1.CommonRouteSpec) inputs.Object[gatewayv1.HTTPRoute] {
	return inputs.Object[gatewayv1.HTTPRoute]{Ref: o.Ref, At: o.At, Value: &gatewayv1.HTTPRoute{ObjectMeta: meta, Spec: gatewayv1.HTTPRouteSpec{CommonRouteSpec: common}}}
}

func refsAsHTTP(refs []gatewayv1.BackendRef) gatewayv1.HTTPRouteRule {
	var rule gatewayv1.HTTPRouteRule
	for _, ref := range refs {
		rule.BackendRefs = append(rule.BackendRefs, gatewayv1.HTTPBackendRef{BackendRef: ref})
	}
	return rule
}

// isOfConnections reports whether the route is for whole connections.
func (c *claims) isOfConnections() bool {
	return c.Kind == "TLSRoute" || c.Kind == "TCPRoute" || c.Kind == "UDPRoute"
}

// readConnections reads the rule of a route of connections. The rule has one match for all connections. The listener
// decides where that match leads.
func (r *reader) readConnections() {
	refuse := func(reason gatewayv1.RouteConditionReason, path []any, message string) {
		r.refused = attach.Verdict{Reason: string(reason), Message: message}
		r.report(diag.Error, r.Position(path...), message+"; the route is not served", "")
	}
	rules := r.Value.Spec.Rules
	unguarded := misplaced(r.Ref, r.Value.Annotations, r.Position, r.report)
	switch {
	case unguarded != "":
		refuse(gatewayv1.RouteReasonUnsupportedValue, []any{"metadata", "annotations"}, unguarded)
		return
	case r.Kind == "UDPRoute":
		refuse(gatewayv1.RouteReasonUnsupportedProtocol, []any{"spec"}, "UDP is not supported")
		return
	case r.Kind == "TLSRoute" && len(r.Hosts) == 0:
		refuse(gatewayv1.RouteReasonUnsupportedValue, []any{"spec"}, "a TLSRoute needs a hostname")
		return
	case len(rules) != 1:
		refuse(gatewayv1.RouteReasonUnsupportedValue, []any{"spec", "rules"}, fmt.Sprintf("a %s has one rule", r.Kind))
		return
	case len(rules[0].BackendRefs) > mostBackends:
		refuse(gatewayv1.RouteReasonUnsupportedValue, []any{"spec", "rules", 0, "backendRefs", mostBackends}, tooManyBackends().message)
		return
	}
	for _, ref := range rules[0].BackendRefs {
		found := r.refer(r.Route, ref.BackendRef)
		r.use(found)
		if found.problem != nil {
			r.resolve(found.problem)
		}
		r.references = append(r.references, found)
	}
}

// connect returns the backend or split of a route of connections for a listener. It is made again each time, since it
// also depends on the listener, and there are few of them.
func (t *routes) connect(r *read, l *attach.Listener) string {
	var w wants
	defer func() { t.backends.merge(w) }()
	origin := r.matches[0].Origin
	if t.unguarded(l) {
		return w.closing(origin)
	}
	var shares []routing.Share
	for _, ref := range r.references {
		switch {
		case ref.weight <= 0:
		case ref.problem != nil:
			shares = append(shares, routing.Share{Backend: w.closing(origin), Weight: ref.weight})
		default:
			shares = append(shares, routing.Share{Backend: t.claimer.source.connections(ref, l, &w, origin), Weight: ref.weight})
		}
	}
	if len(shares) == 0 {
		return w.closing(origin)
	}
	return w.split(shares, connectionSuffix(l.PassesOn())+l.Gateway.Shown, origin)
}

func connectionSuffix(encrypted bool) string {
	if encrypted {
		return ":tls"
	}
	return ":tcp"
}

// connections returns the name of the backend for connections of a listener to the target of a reference. Encrypted
// connections are passed on without ending TLS. The backend is closed if the Service has options that need more than
// the Service, or options that protect it and have no effect for connections.
func (s *source) connections(r reference, l *attach.Listener, w *wants, origin routing.Origin) string {
	made := routing.Backend{Name: r.name + connectionSuffix(l.PassesOn()), Targets: []routing.Target{r.target}}
	offered, _ := options.Read(options.OnService, r.service.Value.Annotations)
	var by *serversTLS
	if !l.PassesOn() {
		by = s.policy(r.use.service, r.use.port)
		offered = w.without(offered, by, r)
	}
	settings, _, closed := options.ForConnections(l.PassesOn(), offered)
	switch {
	case closed || settings.Protection.Any() || settings.ServerSecrets != (options.ServerSecrets{}):
		deny(&made)
		w.close(r)
	case by != nil && by.tls == nil:
		deny(&made)
	default:
		made.Upstream = &settings.Upstream
		if shows(made.Upstream, by, l.Gateway.Shown) {
			made.Name += "-" + digest(l.Gateway.Shown)
		}
	}
	w.ofConnections = append(w.ofConnections, wanted{Backend: made, by: origin})
	return made.Name
}

func (w *wants) closing(origin routing.Origin) string {
	w.ofConnections = append(w.ofConnections, wanted{Backend: routing.Backend{Name: closing}, by: origin})
	return closing
}

// routesConnections reports whether the port has a listener of connections.
func (b *bind) routesConnections() bool {
	return slices.ContainsFunc(b.of, (*attach.Listener).RoutesConnections)
}

// requests returns the listeners with their matches for requests. Listeners of connections have no such matches.
func (b *bind) requests() []layout.Listener {
	out := slices.Clone(b.listeners)
	for i, l := range b.of {
		if l.RoutesConnections() {
			out[i].Matches = nil
		}
	}
	return out
}

// takesRequests reports whether the port has a listener of requests.
func (b *bind) takesRequests() bool {
	return slices.ContainsFunc(b.of, func(l *attach.Listener) bool { return !l.RoutesConnections() })
}

// listener returns a port with listeners of connections in the form of the model.
func (b *bind) listener() routing.Listener {
	out := routing.Listener{
		Name: routing.ListenerName(b.Name), Port: b.Port, Protocol: routing.TCP, Bind: b.Name, Addresses: b.Addresses, Origins: b.Origins,
		ServerNames: serverNames(b, (*attach.Listener).RoutesConnections),
	}
	for i, l := range b.of {
		switch {
		case !l.RoutesConnections():
			out.Protocol = routing.HTTPS
			out.Routes = append(out.Routes, routing.ConnectionRoute{SNI: l.Host, Terminate: true, Origin: l.Origin})
			continue
		case l.PassesOn():
			out.Passes = true
		case l.EndsTLS():
			out.Ends, out.Clients = true, l.Clients
		}
		out.Routes = append(out.Routes, b.connectionsOf(i)...)
	}
	slices.SortFunc(out.Routes, func(a, c routing.ConnectionRoute) int { return cmp.Compare(a.SNI, c.SNI) })
	return out
}

// connectionsOf returns the routes of a listener of connections. If several routes have the same host, the one with the
// most specific hostname wins, and then the oldest. The listener's own host is always among the hosts, so that no other
// listener gets its connections.
func (b *bind) connectionsOf(i int) []routing.ConnectionRoute {
	l := b.of[i]
	best := map[string]layout.Match{}
	for _, m := range b.listeners[i].Matches { // the oldest come first
		if has, is := best[m.Host]; b.owners.Of(m.Host) == i && (!is || layout.MoreSpecific(m.Of, has.Of) < 0) {
			best[m.Host] = m
		}
	}
	if _, is := best[l.Host]; !is && (l.Host != "" || l.Spec.Protocol == gatewayv1.TCPProtocolType) {
		best[l.Host] = layout.Match{Backend: closing, Origin: l.Origin}
	}
	var out []routing.ConnectionRoute
	for host, m := range best {
		out = append(out, routing.ConnectionRoute{SNI: host, Terminate: l.EndsTLS(), Backend: m.Backend, Origin: m.Origin})
	}
	return out
}
