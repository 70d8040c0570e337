package gateway

import (
	"fmt"
	"maps"
	"slices"

	gatewayv1 "sigs.k8s.io/gateway-api/apis/v1"

	"github.com/hapsnap/hapsnap/compiler/diag"
	"github.com/hapsnap/hapsnap/compiler/gateway/attach"
	"github.com/hapsnap/hapsnap/compiler/gateway/layout"
	"github.com/hapsnap/hapsnap/compiler/inputs"
	"github.com/hapsnap/hapsnap/compiler/routing"
)

// bind is a port of a Gateway with the listeners that serve there.
type bind struct {
	routing.Bind
	listeners []layout.Listener
	of        []*attach.Listener // in the same order
}

// gateways are those that are ours, with the ports that they open and what their listeners refer to.
type gateways struct {
	*findings
	cfg          Config
	world        *attach.World
	certificates *certificates
	authorities  *authorities
	binds        map[string]*bind // by name
	verdicts     *Verdicts
	levels       map[diag.Object]*level // Gateways and ListenerSets with options
}

// place finds the Gateways that are ours, and opens their ports. The older one gets a port.
func (t *gateways) place(in inputs.GatewayAPI, of api) {
	ours := map[string]bool{}
	for _, c := range sorted(in.Classes) {
		if string(c.Value.Spec.ControllerName) == t.cfg.Controller {
			ours[c.Ref.Name] = c.Value.Spec.ParametersRef == nil
			if t.cfg.Fleet == "" { // the other compilers of a class leave it to that one
				t.verdicts.Classes = append(t.verdicts.Classes, classVerdict(c, t.cfg, of))
			}
			for _, w := range of.warnings() {
				t.report(w.Severity, c.Ref, c.Position("spec", "controllerName"), w.Message, w.Hint)
			}
			if c.Value.Spec.ParametersRef != nil {
				t.report(diag.Error, c.Ref, c.Position("spec", "parametersRef"), "parameters are not supported; Gateways of the class are not served", "remove them")
			}
		}
	}
	sets := sorted(in.Sets)
	for _, o := range sorted(in.Gateways) {
		if !ours[string(o.Value.Spec.GatewayClassName)] || fleetOf(o.Value) != t.cfg.Fleet {
			continue
		}
		g := attach.NewGateway(o, setsFor(o.Ref, sets)...)
		t.world.Gateways = append(t.world.Gateways, g)
		t.refuse(g)
		t.refuseSets(g)
		g.Judge()
		t.world.Certify(g.All(), t.certificates.served)
		t.askClients(g)
		t.showServers(g)
	}
	place(t.world.Gateways, t.cfg.Addresses)
	t.ports(sets)
	for _, g := range t.world.Gateways {
		for _, port := range g.Ports() {
			t.open(g, port)
		}
		if !g.Unplaced.Fine() {
			t.report(diag.Error, g.Ref, g.Position("spec", "addresses"), g.Unplaced.Message+"; the Gateway is not served", "")
		}
		for _, l := range g.All() {
			for _, v := range []attach.Verdict{l.Accepted, l.Conflicted, l.Resolved} {
				switch {
				case v.Fine():
				case l.Serves():
					t.report(diag.Warning, l.Owner.By, l.Origin.Position, fmt.Sprintf("listener %s: %s", l.Spec.Name, v.Message), "")
				default:
					t.report(diag.Error, l.Owner.By, l.Origin.Position, fmt.Sprintf("listener %s is not served: %s", l.Spec.Name, v.Message), "")
				}
			}
		}
	}
}

// ports shares out the ports of what has no address of its own: first to the listeners of Gateways, then to
// those of ListenerSets, of any Gateway, each time to the older one. So a new ListenerSet takes no port from
// a Gateway that is served, and no authority that is missing for a while gives a port to somebody else.
func (t *gateways) ports(sets []inputs.Object[gatewayv1.ListenerSet]) {
	taken := map[int]string{}
	maps.Copy(taken, t.cfg.Ports)
	claim := func(g *attach.Gateway, listeners []*attach.Listener) {
		if len(g.Addresses) > 0 || !g.Unplaced.Fine() {
			return
		}
		own := g.Ref.String()
		for _, l := range listeners {
			if by, is := taken[int(l.Spec.Port)]; is && by != own && l.Accepted.Fine() {
				l.Accepted = attach.Verdict{Reason: string(gatewayv1.ListenerReasonPortUnavailable), Message: fmt.Sprintf("the port %d is that of %s", l.Spec.Port, by)}
			}
		}
		for _, l := range listeners {
			if l.KeepsPort() {
				taken[int(l.Spec.Port)] = own
			}
		}
	}
	of := map[diag.Object]*attach.Set{}
	for _, g := range t.world.Gateways {
		claim(g, g.Listeners)
		for _, s := range g.Sets {
			of[s.Ref] = s
		}
	}
	for _, o := range sets {
		if s := of[o.Ref]; s != nil {
			claim(s.Gateway, s.Listeners)
		}
	}
}

// setsFor returns the ListenerSets that name a Gateway.
func setsFor(g diag.Object, sets []inputs.Object[gatewayv1.ListenerSet]) []inputs.Object[gatewayv1.ListenerSet] {
	return slices.DeleteFunc(slices.Clone(sets), func(s inputs.Object[gatewayv1.ListenerSet]) bool {
		ref := s.Value.Spec.ParentRef
		to := attach.ReferenceOf("Gateway", s.Ref.Namespace, ref.Group, ref.Kind, ref.Namespace, ref.Name)
		return (ref.Group != nil && to.Group != attach.Group) || to.Kind != g.Kind || to.Namespace != g.Namespace || to.Name != g.Name
	})
}

// unknownField says that an object has a field of a later version of the API.
func unknownField(field string) string {
	return "the field " + field + " is not known to this version"
}

// refuse leaves out a Gateway that asks for what is not supported.
func (t *gateways) refuse(g *attach.Gateway) {
	var why attach.Verdict
	spec := g.Value.Spec
	unguarded := t.readLevel(g.Ref, g.Position, g.Value.Annotations)
	switch field := inputs.UnknownField(g.Value); {
	case unguarded != "":
		why = attach.Verdict{Reason: string(gatewayv1.GatewayReasonInvalid), Message: unguarded}
	case field != "":
		why = attach.Verdict{Reason: string(gatewayv1.GatewayReasonInvalid), Message: unknownField(field)}
	case slices.ContainsFunc(spec.Addresses, func(a gatewayv1.GatewaySpecAddress) bool {
		return len(t.cfg.Addresses) == 0 || a.Type != nil && *a.Type != gatewayv1.IPAddressType
	}):
		why = attach.Verdict{Reason: string(gatewayv1.GatewayReasonUnsupportedAddress), Message: "addresses are supported only of the type IPAddress, and only if the configuration has some for Gateways"}
	case spec.DefaultScope != "" && spec.DefaultScope != gatewayv1.GatewayDefaultScopeNone:
		why = attach.Verdict{Reason: string(gatewayv1.GatewayReasonInvalid), Message: "defaultScope is not supported: routes name their Gateways in parentRefs"}
	case spec.Infrastructure != nil && spec.Infrastructure.ParametersRef != nil && fleetOf(g.Value) == "":
		why = attach.Verdict{Reason: string(gatewayv1.GatewayReasonInvalidParameters), Message: "parameters are not supported, other than a Fleet of hapsnap.dev"}
	default:
		return
	}
	g.Refused = why
	t.report(diag.Error, g.Ref, g.Position("spec"), why.Message+"; the Gateway is not served", "")
}

// refuseSets leaves out the ListenerSets that a Gateway does not allow.
func (t *gateways) refuseSets(g *attach.Gateway) {
	for _, s := range g.Sets {
		unguarded := t.readLevel(s.Ref, s.Position, s.Value.Annotations)
		switch field := inputs.UnknownField(s.Value); {
		case unguarded != "":
			s.Refused = attach.Verdict{Reason: string(gatewayv1.ListenerSetReasonInvalid), Message: unguarded}
		case field != "":
			s.Refused = attach.Verdict{Reason: string(gatewayv1.ListenerSetReasonInvalid), Message: unknownField(field)}
		case !g.Refused.Fine():
			s.Refused = attach.Verdict{Reason: string(gatewayv1.ListenerSetReasonParentNotAccepted), Message: g.Ref.String() + " is not accepted"}
		case !t.world.Allows(g, s.Ref.Namespace):
			s.Refused = attach.Verdict{Reason: string(gatewayv1.ListenerSetReasonNotAllowed), Message: fmt.Sprintf("%s allows no ListenerSets from the namespace %s", g.Ref, s.Ref.Namespace)}
		default:
			continue
		}
		t.report(diag.Error, s.Ref, s.Position("spec", "parentRef"), s.Refused.Message+"; the listeners are not served", "")
	}
}

func bindName(g *attach.Gateway, port int) string {
	return fmt.Sprintf("%s/%s:%d", g.Ref.Namespace, g.Ref.Name, port)
}

// open makes the bind of a Gateway's port.
func (t *gateways) open(g *attach.Gateway, port int) {
	b := &bind{Bind: routing.Bind{Name: bindName(g, port), Port: port, Socket: port, Addresses: g.Addresses, Protocol: routing.HTTP}}
	for _, l := range g.All() {
		if !l.Serves() || int(l.Spec.Port) != port {
			continue
		}
		listener := layout.Listener{Host: l.Host, Origin: l.Origin}
		if l.Spec.Protocol != gatewayv1.HTTPProtocolType {
			listener.Name = l.Name()
		}
		if l.Spec.Protocol == gatewayv1.HTTPSProtocolType {
			b.Protocol, b.Clients = routing.HTTPS, l.Clients
		}
		b.of, b.listeners, b.Origins = append(b.of, l), append(b.listeners, listener), append(b.Origins, l.Origin)
	}
	b.ServerNames = serverNames(b, func(l *attach.Listener) bool { return !l.RoutesConnections() })
	b.Behind = b.takesRequests() && b.routesConnections()
	t.binds[b.Name] = b
}

// judge says what the status of the Gateways and their ListenerSets is to say, once the routes are attached.
func (t *gateways) judge() {
	for _, g := range t.world.Gateways {
		v := gatewayVerdict(g)
		v.Service = t.service(g)
		t.verdicts.Gateways = append(t.verdicts.Gateways, v)
		for _, s := range g.Sets {
			t.verdicts.Sets = append(t.verdicts.Sets, setVerdict(s))
		}
	}
}
