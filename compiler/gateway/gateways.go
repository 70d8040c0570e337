package gateway

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/util/validation"
	gatewayv1 "sigs.k8s.io/gateway-api/apis/v1"

	"github.com/hapsnap/hapsnap/compiler/config/field"
	configured "github.com/hapsnap/hapsnap/compiler/config/gateways"
	"github.com/hapsnap/hapsnap/compiler/diag"
	"github.com/hapsnap/hapsnap/compiler/gateway/attach"
	"github.com/hapsnap/hapsnap/compiler/gateway/layout"
	"github.com/hapsnap/hapsnap/compiler/inputs"
	"github.com/hapsnap/hapsnap/compiler/routing"
)

// bind is a port of a Gateway, with the listeners that serve on it.
type bind struct {
	routing.Bind
	listeners []layout.Listener
	of        []*attach.Listener // the same listeners, in the same order
	at        map[*attach.Listener]int
	owners    layout.Owners
}

// gateways are our Gateways, with the ports that they open and the objects to which their listeners refer.
type gateways struct {
	*findings
	cfg          Config
	world        *attach.World
	certificates *certificates
	authorities  *authorities
	binds        map[string]*bind // by name
	verdicts     *Verdicts
	levels       map[diag.Object]*level     // Gateways and ListenerSets with options
	opened       map[string]map[string]bool // ports that were counted, by namespace
}

// place finds our Gateways and opens their ports. If two ask for the same port, the older one gets it.
func (t *gateways) place(in inputs.GatewayAPI, of api) {
	ours := map[string]bool{}
	for _, c := range sorted(in.Classes) {
		if string(c.Value.Spec.ControllerName) == t.cfg.Controller {
			ours[c.Ref.Name] = c.Value.Spec.ParametersRef == nil
			if t.cfg.Fleet == "" { // only the compiler without a fleet writes the status of classes
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
	setsOf := byParent(sets)
	for _, o := range sorted(in.Gateways) {
		if !ours[string(o.Value.Spec.GatewayClassName)] {
			continue
		}
		if fleet := configured.FleetOf(o.Value); fleet != t.cfg.Fleet {
			if t.cfg.Fleet == "" {
				t.verdicts.Others = append(t.verdicts.Others, otherVerdict(o, fleet))
			}
			continue
		}
		g := attach.NewGateway(o, setsOf[o.Ref]...)
		t.world.Add(g)
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
		t.open(g)
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

// ports assigns the shared ports, which Gateways without an address of their own have. Listeners of Gateways come
// before those of ListenerSets, whatever their Gateway. Among these, the older one wins. So a new ListenerSet takes no
// port from a served Gateway, and a listener keeps its port while its authorities are missing for a while. In the same
// order, each namespace gets as many ports as it may have, shared or not.
func (t *gateways) ports(sets []inputs.Object[gatewayv1.ListenerSet]) {
	taken := map[int]string{}
	maps.Copy(taken, t.cfg.Ports)
	claim := func(g *attach.Gateway, listeners []*attach.Listener) {
		for _, l := range listeners {
			if l.Accepted.Fine() && len(t.cfg.AllowedPorts) > 0 && !field.HasPort(t.cfg.AllowedPorts, int(l.Spec.Port)) {
				l.Accepted = attach.Verdict{Reason: string(gatewayv1.ListenerReasonPortUnavailable), Message: fmt.Sprintf("the port %d is not one of gatewayAPI.ports in the configuration", l.Spec.Port)}
			}
		}
		if !g.Unplaced.Fine() {
			return
		}
		own, shared := g.Ref.String(), len(g.Addresses) == 0
		for _, l := range listeners {
			if by, is := taken[int(l.Spec.Port)]; is && by != own && shared && l.Accepted.Fine() {
				l.Accepted = attach.Verdict{Reason: string(gatewayv1.ListenerReasonPortUnavailable), Message: fmt.Sprintf("the port %d is that of %s", l.Spec.Port, by)}
			}
			t.count(l)
		}
		if !shared {
			return
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

// count counts the ports of a namespace, and refuses a listener with one too many.
func (t *gateways) count(l *attach.Listener) {
	if !l.Accepted.Fine() || !l.Conflicted.Fine() || !l.Owner.Refused.Fine() || !l.Gateway.Refused.Fine() {
		return
	}
	namespace, port := l.Owner.By.Namespace, bindName(l.Gateway, int(l.Spec.Port))
	switch of := t.opened[namespace]; {
	case of[port]:
	case t.cfg.MostPorts > 0 && len(of) >= t.cfg.MostPorts:
		l.Accepted = attach.Verdict{Reason: string(gatewayv1.ListenerReasonPortUnavailable), Message: fmt.Sprintf("the listeners of the namespace %s open more than %d ports (limits.namespacePorts of the configuration)", namespace, t.cfg.MostPorts)}
	case of == nil:
		t.opened[namespace] = map[string]bool{port: true}
	default:
		of[port] = true
	}
}

// byParent groups the ListenerSets by the Gateway that each names.
func byParent(sets []inputs.Object[gatewayv1.ListenerSet]) map[diag.Object][]inputs.Object[gatewayv1.ListenerSet] {
	out := map[diag.Object][]inputs.Object[gatewayv1.ListenerSet]{}
	for _, s := range sets {
		ref := s.Value.Spec.ParentRef
		to := attach.ReferenceOf("Gateway", s.Ref.Namespace, ref.Group, ref.Kind, ref.Namespace, ref.Name)
		if ref.Group == nil || to.Group == attach.Group {
			g := diag.Object{Kind: to.Kind, Namespace: to.Namespace, Name: to.Name}
			out[g] = append(out[g], s)
		}
	}
	return out
}

// unknownField returns the message for a field of a later version of the API.
func unknownField(field string) string {
	return "the field " + field + " is not known to this version"
}

// refuse leaves out a Gateway that asks for something that is not supported.
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
	case spec.Infrastructure != nil && spec.Infrastructure.ParametersRef != nil && configured.FleetOf(g.Value) == "":
		why = attach.Verdict{Reason: string(gatewayv1.GatewayReasonInvalidParameters), Message: "parameters are not supported, other than a Fleet of hapsnap.dev"}
	default:
		return
	}
	g.Refused = why
	t.report(diag.Error, g.Ref, g.Position("spec"), why.Message+"; the Gateway is not served", "")
}

// refuseSets leaves out the ListenerSets that the Gateway does not allow.
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

// open makes the binds of a Gateway's ports.
func (t *gateways) open(g *attach.Gateway) {
	var opened []*bind
	for _, l := range g.All() {
		if !l.Serves() {
			continue
		}
		port := int(l.Spec.Port)
		b := t.binds[bindName(g, port)]
		if b == nil {
			b = &bind{Bind: routing.Bind{Name: bindName(g, port), Port: port, Socket: port, Addresses: g.Addresses, Protocol: routing.HTTP}, at: map[*attach.Listener]int{}}
			t.binds[b.Name] = b
			opened = append(opened, b)
		}
		listener := layout.Listener{Host: l.Host, Origin: l.Origin}
		if l.Spec.Protocol != gatewayv1.HTTPProtocolType {
			listener.Name = l.Name()
		}
		if l.Spec.Protocol == gatewayv1.HTTPSProtocolType {
			b.Protocol, b.Clients = routing.HTTPS, l.Clients
		}
		b.at[l] = len(b.of)
		b.of, b.listeners, b.Origins = append(b.of, l), append(b.listeners, listener), append(b.Origins, l.Origin)
	}
	for _, b := range opened {
		b.owners = layout.OwnersOf(b.listeners)
		b.ServerNames = serverNames(b, func(l *attach.Listener) bool { return !l.RoutesConnections() })
		b.Behind = b.takesRequests() && b.routesConnections()
	}
}

// judge decides what the status of the Gateways and their ListenerSets should say. It runs after the routes are
// attached.
func (t *gateways) judge() {
	for _, g := range t.world.Gateways {
		v := GatewayVerdict{Ref: g.Ref}
		for _, l := range g.Listeners {
			v.Status.Listeners = append(v.Status.Listeners, listenerVerdict(l, g.Value.Generation))
		}
		v.Status.Conditions = ownerConditions(&g.Owner, g.Unplaced, string(gatewayv1.GatewayReasonInvalid), g.Value.Generation)
		v.Status.Conditions = append(v.Status.Conditions, referenceConditions(g)...)
		for _, a := range g.Addresses {
			v.Status.Addresses = append(v.Status.Addresses, gatewayv1.GatewayStatusAddress{Type: new(gatewayv1.IPAddressType), Value: a})
		}
		sets := int32(0)
		for _, s := range g.Sets {
			if s.Refused.Fine() && slices.ContainsFunc(s.Listeners, (*attach.Listener).Valid) {
				sets++
			}
		}
		v.Status.AttachedListenerSets = &sets
		v.Service = t.service(g)
		t.verdicts.Gateways = append(t.verdicts.Gateways, v)
		for _, s := range g.Sets {
			set := SetVerdict{Ref: s.Ref}
			for _, l := range s.Listeners {
				set.Status.Listeners = append(set.Status.Listeners, gatewayv1.ListenerEntryStatus(listenerVerdict(l, s.Value.Generation)))
			}
			set.Status.Conditions = ownerConditions(&s.Owner, s.Gateway.Unplaced, string(gatewayv1.ListenerSetReasonListenersNotValid), s.Value.Generation)
			t.verdicts.Sets = append(t.verdicts.Sets, set)
		}
	}
}

// pool has the addresses for Gateways.
type pool struct {
	networks []netip.Prefix
	taken    map[netip.Addr]string // the Gateways that have them
}

// place gives every Gateway an address of its own, if the configuration has addresses. First, Gateways keep the
// addresses that are in their status, so that no other Gateway takes these. Then Gateways that name addresses get
// those. Then all others get the first free address. In each of these steps, older Gateways come first.
func place(gateways []*attach.Gateway, networks []netip.Prefix) {
	if len(networks) == 0 {
		return
	}
	p := pool{networks: networks, taken: map[netip.Addr]string{}}
	for _, g := range gateways {
		// A Gateway keeps the addresses in its status, unless it names others.
		if !g.Refused.Fine() {
			continue
		}
		var has []string
		for _, a := range g.Value.Status.Addresses {
			has = append(has, a.Value)
		}
		want := named(g)
		if len(has) == 0 || len(want) > 0 && !slices.Equal(has, want) || len(want) == 0 && len(has) > 1 {
			continue
		}
		if usable, why := p.usable(has); why.Fine() {
			p.take(g, usable)
		}
	}
	for _, g := range gateways {
		if g.Refused.Fine() && len(g.Addresses) == 0 && len(named(g)) > 0 {
			usable, why := p.usable(named(g))
			if g.Unplaced = why; why.Fine() {
				p.take(g, usable)
			}
		}
	}
	for _, g := range gateways {
		if g.Refused.Fine() && len(g.Addresses) == 0 && len(named(g)) == 0 {
			p.giveFree(g)
		}
	}
}

// named returns the addresses that a Gateway names. An address without a value means any address, and is left out.
func named(g *attach.Gateway) []string {
	var out []string
	for _, a := range g.Value.Spec.Addresses {
		if a.Value != "" {
			out = append(out, a.Value)
		}
	}
	return out
}

func (p pool) giveFree(g *attach.Gateway) {
	for _, network := range p.networks {
		for a := network.Masked().Addr(); network.Contains(a); a = a.Next() {
			if _, is := p.taken[a]; !is {
				p.take(g, []netip.Addr{a})
				return
			}
		}
	}
	g.Unplaced = attach.Verdict{Reason: string(gatewayv1.GatewayReasonAddressNotAssigned), Message: "all addresses for Gateways are taken"}
}

func (p pool) take(g *attach.Gateway, addresses []netip.Addr) {
	for _, a := range addresses {
		p.taken[a] = g.Ref.String()
		g.Addresses = append(g.Addresses, a.String())
	}
}

// usable returns the addresses in texts, or says why the Gateway may not have them.
func (p pool) usable(texts []string) ([]netip.Addr, attach.Verdict) {
	var out []netip.Addr
	for _, text := range texts {
		a, err := netip.ParseAddr(text)
		switch by, taken := p.taken[a]; {
		case err != nil || a.Zone() != "" || !slices.ContainsFunc(p.networks, func(n netip.Prefix) bool { return n.Contains(a) }):
			return nil, attach.Verdict{Reason: string(gatewayv1.GatewayReasonAddressNotUsable), Message: fmt.Sprintf("the address %s is none of those for Gateways", text)}
		case taken:
			return nil, attach.Verdict{Reason: string(gatewayv1.GatewayReasonAddressNotUsable), Message: fmt.Sprintf("the address %s is that of %s", text, by)}
		case slices.Contains(out, a):
			return nil, attach.Verdict{Reason: string(gatewayv1.GatewayReasonAddressNotUsable), Message: fmt.Sprintf("the address %s is named twice", text)}
		}
		out = append(out, a)
	}
	return out, attach.Verdict{}
}

// Services says which Services the compiler makes for Gateways.
type Services struct {
	Enabled bool
	// Labels and Annotations are the keys that a Gateway may give to its Service: whole keys, "example.com/*" or "*".
	Labels, Annotations []string
}

// gatewayServiceMark is an annotation of all of these Services that says who made them, see package announce.
const gatewayServiceMark = "gateway.hapsnap.dev/controller"

// Service is the Service that a Gateway should have in its namespace (GEP-1762).
type Service struct {
	Name                string
	Labels, Annotations map[string]string
	// Ports are the ports of the listeners that are served. If there are none, no Service is made, and an existing one
	// stays: a mistake in a listener must not release the address of a load balancer.
	Ports []int
	// Addresses are the addresses of the Gateway, at which HAProxy listens on these ports.
	Addresses []string
}

// service returns the Service that a Gateway should have, or nil.
func (t *gateways) service(g *attach.Gateway) *Service {
	labels, annotations := brought(g.Value.Spec.Infrastructure)
	if !t.cfg.Services.Enabled {
		if len(labels)+len(annotations) > 0 {
			t.report(diag.Warning, g.Ref, g.Position("spec", "infrastructure"), "labels and annotations are for the Service of a Gateway, and the configuration makes none", "")
		}
		return nil
	}
	class := string(g.Value.Spec.GatewayClassName)
	out := &Service{Name: serviceName(g.Ref.Name, class), Addresses: g.Addresses, Labels: map[string]string{}, Annotations: map[string]string{}}
	t.bring(g, "labels", labels, t.cfg.Services.Labels, out.Labels)
	t.bring(g, "annotations", annotations, t.cfg.Services.Annotations, out.Annotations)
	out.Labels[gatewayv1.GatewayNameLabelKey] = labelValue(g.Ref.Name)
	out.Labels[gatewayv1.GatewayClassNameLabelKey] = labelValue(class)
	if g.Refused.Fine() && g.Unplaced.Fine() {
		out.Ports = g.Ports()
	}
	return out
}

func brought(i *gatewayv1.GatewayInfrastructure) (labels, annotations map[string]string) {
	labels, annotations = map[string]string{}, map[string]string{}
	if i == nil {
		return labels, annotations
	}
	for key, value := range i.Labels {
		labels[string(key)] = string(value)
	}
	for key, value := range i.Annotations {
		annotations[string(key)] = string(value)
	}
	return labels, annotations
}

// bring copies the labels or annotations that a Gateway may give to its Service, and reports the others.
func (t *gateways) bring(g *attach.Gateway, field string, from map[string]string, allowed []string, to map[string]string) {
	for _, key := range slices.Sorted(maps.Keys(from)) {
		if configured.MayBring(key, allowed) {
			to[key] = from[key]
			continue
		}
		t.report(diag.Warning, g.Ref, g.Position("spec", "infrastructure", field, key), fmt.Sprintf("%s is left out of the Service: gatewayAPI.services.%s of the configuration does not allow it", key, field), "")
	}
}

// serviceName returns NAME-CLASS. If that is not a valid name of a Service, the result begins in the same way and ends
// with a digest.
func serviceName(gateway, class string) string {
	name := gateway + "-" + class
	if len(validation.IsDNS1035Label(name)) == 0 {
		return name
	}
	plain := strings.ReplaceAll(name, ".", "-")
	if plain[0] >= '0' && plain[0] <= '9' {
		plain = "gateway-" + plain
	}
	return shortened(plain, name)
}

// labelValue returns a name in the form of a label's value.
func labelValue(name string) string {
	if len(name) <= validation.LabelValueMaxLength {
		return name
	}
	return shortened(name, name)
}

// shortened cuts a text to 63 characters, of which the last are a digest of whole.
func shortened(text, whole string) string {
	sum := sha256.Sum256([]byte(whole))
	digest := hex.EncodeToString(sum[:4])
	return strings.TrimRight(text[:min(len(text), validation.DNS1035LabelMaxLength-1-len(digest))], "-.") + "-" + digest
}
