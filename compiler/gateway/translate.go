package gateway

import (
	"cmp"
	"fmt"
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	gatewayv1 "sigs.k8s.io/gateway-api/apis/v1"

	"github.com/hapsnap/hapsnap/compiler/diag"
	"github.com/hapsnap/hapsnap/compiler/gateway/attach"
	"github.com/hapsnap/hapsnap/compiler/gateway/layout"
	"github.com/hapsnap/hapsnap/compiler/inputs"
	"github.com/hapsnap/hapsnap/compiler/policy"
	"github.com/hapsnap/hapsnap/compiler/routing"
	"github.com/hapsnap/hapsnap/compiler/routing/hostname"
	"github.com/hapsnap/hapsnap/internal/manifests"
)

// Config says which Gateways are translated.
type Config struct {
	// Ports are those that Gateways cannot have, and what has them.
	Ports map[int]string
	// Form is the one in which paths are compared.
	Form routing.PathForm
	// SecretsUnseen says that no Secret is looked at, and that none is missing.
	SecretsUnseen bool
	// MostRoutes is how many matches, once for each of their hosts, the routes of a namespace may have;
	// 0 is no limit.
	MostRoutes int
}

// mostParts is how many names of headers and parameters, and expressions, the routes of a namespace may
// look at: each costs every request with conditions.
const mostParts = 64

// Translate returns what Gateways that are ours and their routes bring to a model, the findings on them,
// sorted, and what their status is to say. It is a pure function; the order of the inputs takes no part.
func Translate(in inputs.Inputs, cfg Config) (routing.Model, []diag.Diagnostic, Verdicts) {
	if len(in.Gateway.Classes) == 0 {
		return routing.Model{}, nil, Verdicts{}
	}
	t := &translation{cfg: cfg, binds: map[string]*bind{}, secrets: map[types.NamespacedName]inputs.Object[corev1.Secret]{}, certificates: map[string]routing.Certificate{}, routes: map[string]int{}, parts: map[string]map[string]bool{}}
	for _, s := range in.Secrets {
		t.secrets[types.NamespacedName{Namespace: s.Ref.Namespace, Name: s.Ref.Name}] = s
	}
	t.backends = &backends{services: map[types.NamespacedName]inputs.Object[corev1.Service]{}, byName: map[string]*routing.Backend{}, splits: map[string]routing.Split{}}
	for _, s := range in.Services {
		t.backends.services[types.NamespacedName{Namespace: s.Ref.Namespace, Name: s.Ref.Name}] = s
	}
	t.world.Namespaces = map[string]labels.Set{}
	for _, n := range in.Namespaces {
		t.world.Namespaces[n.Ref.Name] = n.Value.Labels
	}
	t.world.Grants = in.Gateway.Grants
	t.gateways(in.Gateway)
	t.backends.world = t.world
	routes := slices.Clone(in.Gateway.HTTPRoutes)
	for _, r := range in.Gateway.GRPCRoutes {
		routes = append(routes, asHTTP(r))
	}
	for _, r := range sorted(routes, func(r *gatewayv1.HTTPRoute) int64 { return r.CreationTimestamp.Unix() }) {
		t.route(r)
	}
	for _, g := range t.world.Gateways {
		t.verdicts.Gateways = append(t.verdicts.Gateways, gatewayVerdict(g))
		for _, s := range g.Sets {
			t.verdicts.Sets = append(t.verdicts.Sets, setVerdict(s))
		}
	}
	model := t.model()
	return model, diag.Sort(t.found), t.verdicts
}

type translation struct {
	cfg      Config
	world    attach.World
	backends *backends
	binds    map[string]*bind
	found    []diag.Diagnostic
	verdicts Verdicts

	secrets      map[types.NamespacedName]inputs.Object[corev1.Secret]
	certificates map[string]routing.Certificate // by file

	routes map[string]int             // by namespace
	parts  map[string]map[string]bool // by namespace
}

// bind is a port of a Gateway with the listeners that serve there.
type bind struct {
	routing.Bind
	listeners []layout.Listener
	index     map[*attach.Listener]int
}

// sorted returns objects by age and name, each name once.
func sorted[T any](objects []inputs.Object[T], age func(*T) int64) []inputs.Object[T] {
	out := slices.Clone(objects)
	slices.SortFunc(out, func(a, b inputs.Object[T]) int {
		return cmp.Or(cmp.Compare(age(a.Value), age(b.Value)), cmp.Compare(a.Ref.Namespace, b.Ref.Namespace), cmp.Compare(a.Ref.Name, b.Ref.Name), a.Ref.Compare(b.Ref))
	})
	seen := map[diag.Object]bool{}
	return slices.DeleteFunc(out, func(o inputs.Object[T]) bool {
		again := seen[o.Ref]
		seen[o.Ref] = true
		return again
	})
}

// gateways finds the Gateways that are ours, and opens their ports. The older one gets a port.
func (t *translation) gateways(in inputs.GatewayAPI) {
	ours := map[string]bool{}
	for _, c := range sorted(in.Classes, func(c *gatewayv1.GatewayClass) int64 { return c.CreationTimestamp.Unix() }) {
		if c.Value.Spec.ControllerName == inputs.GatewayController {
			ours[c.Ref.Name] = c.Value.Spec.ParametersRef == nil
			t.verdicts.Classes = append(t.verdicts.Classes, classVerdict(c))
			if c.Value.Spec.ParametersRef != nil {
				t.report(diag.Error, c.Ref, c.Position("spec", "parametersRef"), "parameters are not supported; Gateways of the class are not served", "remove them")
			}
		}
	}
	sets := sorted(in.Sets, func(s *gatewayv1.ListenerSet) int64 { return s.CreationTimestamp.Unix() })
	taken := map[int]string{}
	maps.Copy(taken, t.cfg.Ports)
	for _, o := range sorted(in.Gateways, func(g *gatewayv1.Gateway) int64 { return g.CreationTimestamp.Unix() }) {
		if !ours[string(o.Value.Spec.GatewayClassName)] {
			continue
		}
		g := attach.NewGateway(o, setsFor(o.Ref, sets)...)
		t.world.Gateways = append(t.world.Gateways, g)
		t.refuse(g)
		t.refuseSets(g)
		t.world.Certify(g.All(), t.certificate)
		for _, l := range g.All() {
			if by, is := taken[int(l.Spec.Port)]; is && l.Accepted.Fine() {
				l.Accepted = attach.Verdict{Reason: string(gatewayv1.ListenerReasonPortUnavailable), Message: fmt.Sprintf("the port %d is that of %s", l.Spec.Port, by)}
			}
		}
		for _, port := range g.Ports() {
			taken[port] = o.Ref.String()
			t.open(g, port)
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

// setsFor returns the ListenerSets that name a Gateway.
func setsFor(g diag.Object, sets []inputs.Object[gatewayv1.ListenerSet]) []inputs.Object[gatewayv1.ListenerSet] {
	return slices.DeleteFunc(slices.Clone(sets), func(s inputs.Object[gatewayv1.ListenerSet]) bool {
		ref := s.Value.Spec.ParentRef
		to := attach.ReferenceOf("Gateway", s.Ref.Namespace, ref.Group, ref.Kind, ref.Namespace, ref.Name)
		return (ref.Group != nil && to.Group != attach.Group) || to.Kind != g.Kind || to.Namespace != g.Namespace || to.Name != g.Name
	})
}

// refuse leaves out a Gateway that asks for what is not supported.
func (t *translation) refuse(g *attach.Gateway) {
	var why attach.Verdict
	spec := g.Value.Spec
	switch {
	case len(spec.Addresses) > 0:
		why = attach.Verdict{Reason: string(gatewayv1.GatewayReasonUnsupportedAddress), Message: "addresses are not supported"}
	case spec.Infrastructure != nil && spec.Infrastructure.ParametersRef != nil:
		why = attach.Verdict{Reason: string(gatewayv1.GatewayReasonInvalidParameters), Message: "parameters are not supported"}
	case spec.TLS != nil && (spec.TLS.Frontend != nil || spec.TLS.Backend != nil):
		why = attach.Verdict{Reason: string(gatewayv1.GatewayReasonInvalidParameters), Message: "TLS of the whole Gateway is not supported"}
	default:
		return
	}
	g.Refused = why
	t.report(diag.Error, g.Ref, g.Position("spec"), why.Message+"; the Gateway is not served", "")
}

// refuseSets leaves out the ListenerSets that a Gateway does not allow.
func (t *translation) refuseSets(g *attach.Gateway) {
	for _, s := range g.Sets {
		switch {
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
func (t *translation) open(g *attach.Gateway, port int) {
	name := bindName(g, port)
	b := &bind{index: map[*attach.Listener]int{}}
	for _, l := range g.All() {
		if l.Serves() && int(l.Spec.Port) == port {
			b.index[l] = len(b.listeners)
			listener := layout.Listener{Host: l.Host, Origin: l.Origin}
			if l.Spec.Protocol == gatewayv1.HTTPSProtocolType {
				listener.Name = l.Name()
			}
			b.listeners = append(b.listeners, listener)
			b.Origins = append(b.Origins, l.Origin)
		}
	}
	b.Bind = routing.Bind{Name: name, Port: port, Socket: port, Protocol: routing.HTTP, Origins: b.Origins}
	for l := range b.index {
		if l.Spec.Protocol == gatewayv1.HTTPSProtocolType {
			b.Protocol = routing.HTTPS
		}
	}
	b.ServerNames = serverNames(b)
	t.binds[name] = b
}

// report adds a finding.
func (t *translation) report(severity diag.Severity, object diag.Object, at diag.Position, message, hint string) {
	t.found = append(t.found, diag.Diagnostic{Severity: severity, Object: object, Position: at, Message: message, Hint: hint})
}

// route attaches a route to the listeners that it names, and gives these its matches.
func (t *translation) route(o inputs.Object[gatewayv1.HTTPRoute]) {
	var parents []gatewayv1.ParentReference
	for _, ref := range o.Value.Spec.ParentRefs {
		if t.world.Parent(o.Ref.Namespace, ref) != nil {
			parents = append(parents, ref)
		}
	}
	if len(parents) == 0 {
		return // somebody else's
	}
	r := t.read(o)
	attached := map[*attach.Listener]bool{}
	verdict := RouteVerdict{Ref: o.Ref}
	for _, ref := range parents {
		parent := t.world.Parent(o.Ref.Namespace, ref)
		attachments, why := t.world.Attach(parent, ref, r.Route)
		if !why.Fine() {
			t.report(diag.Warning, o.Ref, o.Position("spec", "parentRefs", slices.IndexFunc(o.Value.Spec.ParentRefs, func(p gatewayv1.ParentReference) bool { return sameParent(p, ref) })),
				fmt.Sprintf("the route is not attached to %s: %s", parent.By, why.Message), "")
		}
		if why.Fine() {
			why = r.refused
		}
		if why.Fine() {
			if attachments, why = attach.Settle(attachments, r.Route); !why.Fine() {
				t.report(diag.Error, o.Ref, o.Position("spec", "hostnames"), fmt.Sprintf("the route is not attached to %s: %s", parent.By, why.Message), "")
			}
		}
		if why.Fine() {
			why = t.bound(r, attachments)
		}
		verdict.Parents = append(verdict.Parents, r.verdict(ref, why))
		if !why.Fine() {
			continue
		}
		for _, a := range attachments {
			if attached[a.Listener] {
				continue
			}
			attached[a.Listener] = true
			a.Listener.Attached++
			t.give(a, r)
		}
	}
	t.verdicts.Routes = append(t.verdicts.Routes, verdict)
}

// bound counts what a route brings to listeners, and says why that is too much.
func (t *translation) bound(r *read, attachments []attach.Attachment) attach.Verdict {
	n := 0
	for _, a := range attachments {
		n += len(a.Hosts) * len(r.matches)
	}
	namespace := r.Object.Ref.Namespace
	if t.cfg.MostRoutes > 0 && t.routes[namespace]+n > t.cfg.MostRoutes {
		message := fmt.Sprintf("the routes of the namespace %s have more than %d matches, once for each host", namespace, t.cfg.MostRoutes)
		t.report(diag.Error, r.Ref, r.Position("spec"), message+"; this one is not served", "raise limits.namespaceRoutes of the configuration")
		return attach.Verdict{Reason: string(gatewayv1.RouteReasonUnsupportedValue), Message: message}
	}
	t.routes[namespace] += n
	return attach.Verdict{}
}

// costly takes note of the parts of requests that matches look at, and says which one is too much.
func (t *translation) costly(namespace string, matches []match) *problem {
	known := t.parts[namespace]
	if known == nil {
		known = map[string]bool{}
		t.parts[namespace] = known
	}
	more := map[string]bool{}
	for _, m := range matches {
		for _, c := range m.conditions {
			part := string(c.Of) + " " + c.Name
			if c.Of == routing.HeaderPattern || c.Of == routing.QueryPattern || c.Of == routing.PathPattern {
				part += " " + c.Value
			}
			if !known[part] {
				more[part] = true
			}
		}
	}
	if len(known)+len(more) > mostParts {
		return unsupported("the routes of the namespace %s look at more than %d names of headers and parameters, and expressions", namespace, mostParts).in("matches")
	}
	maps.Copy(known, more)
	return nil
}

func sameParent(a, b gatewayv1.ParentReference) bool {
	return fmt.Sprintf("%#v", a) == fmt.Sprintf("%#v", b)
}

// give adds the matches of a route to a listener.
func (t *translation) give(a attach.Attachment, r *read) {
	name := bindName(a.Listener.Gateway, int(a.Listener.Spec.Port))
	b := t.binds[name]
	if b == nil || !a.Listener.Serves() {
		return
	}
	l := &b.listeners[b.index[a.Listener]]
	for _, host := range a.Hosts {
		for _, m := range r.matches {
			m.Host = host
			l.Matches = append(l.Matches, m)
		}
	}
}

// read is a route, read once for all of its parents.
type read struct {
	inputs.Object[gatewayv1.HTTPRoute]
	attach.Route
	matches []layout.Match
	// refused says why no rule of the route is served, dropped why some are not, and resolved which
	// reference leads to nothing.
	refused, dropped, resolved attach.Verdict
}

// read reads the rules of a route.
func (t *translation) read(o inputs.Object[gatewayv1.HTTPRoute]) *read {
	r := &read{Object: o, Route: attach.Route{Kind: o.Ref.Kind, Namespace: o.Ref.Namespace}}
	for i, h := range o.Value.Spec.Hostnames {
		if message, hint := hostname.Check(hostname.Normal(string(h))); message != "" {
			t.report(diag.Error, o.Ref, o.Position("spec", "hostnames", i), fmt.Sprintf("hostname %q %s; the route is not served", h, message), hint)
			r.refused = attach.Verdict{Reason: string(gatewayv1.RouteReasonUnsupportedValue), Message: fmt.Sprintf("hostname %q %s", h, message)}
			return r
		}
		r.Hosts = append(r.Hosts, hostname.Of(string(h)))
	}
	rules := o.Value.Spec.Rules
	if len(rules) == 0 {
		rules = []gatewayv1.HTTPRouteRule{{}}
	}
	dropped := 0
	for i, rule := range rules {
		matches, p := t.rule(r, i, rule)
		if p != nil {
			dropped++
			p = p.in("spec", "rules", i)
			t.report(diag.Error, o.Ref, o.Position(p.path...), p.message+"; the rule is not served", "")
			if r.dropped.Fine() {
				r.dropped = attach.Verdict{Reason: p.reason, Message: fmt.Sprintf("Dropped Rule %d: %s: %s", i, manifests.FieldPath(p.path), p.message)}
			}
			continue
		}
		r.matches = append(r.matches, matches...)
	}
	if dropped == len(rules) {
		r.refused, r.dropped = r.dropped, attach.Verdict{}
	}
	return r
}

// rule returns the matches of a rule and where they lead, or why there are none.
func (t *translation) rule(r *read, i int, rule gatewayv1.HTTPRouteRule) ([]layout.Match, *problem) {
	switch {
	case rule.Retry != nil:
		return nil, unsupported("retries are not supported").in("retry")
	case rule.SessionPersistence != nil:
		return nil, unsupported("session persistence is not supported").in("sessionPersistence")
	}
	matches, p := matchesOf(rule, t.cfg.Form)
	if p != nil {
		return nil, p
	}
	if p := t.costly(r.Object.Ref.Namespace, matches); p != nil {
		return nil, p
	}
	todo, p := workOf(rule.Filters)
	if p != nil {
		return nil, p
	}
	if todo.timeout, p = timeoutOf(rule.Timeouts); p != nil {
		return nil, p
	}
	each := make([]work, len(rule.BackendRefs))
	for n, ref := range rule.BackendRefs {
		if each[n], p = workOf(ref.Filters); p != nil {
			return nil, p.in("backendRefs", n)
		}
		if each[n].redirect != nil {
			return nil, unsupported("a redirect has no backend").in("backendRefs", n, "filters")
		}
	}
	if todo.redirect != nil && len(rule.BackendRefs) > 0 {
		return nil, (&problem{reason: string(gatewayv1.RouteReasonIncompatibleFilters), message: "a redirect has no backend"}).in("backendRefs")
	}
	at := []any{"spec", "rules", i}
	origin := routing.Origin{Object: r.Ref, Position: r.Position(at...), Field: manifests.FieldPath(at)}
	var out []layout.Match
	for n, m := range matches {
		to, p := t.destination(r, rule, m, todo, each, origin)
		if p != nil {
			return nil, p
		}
		out = append(out, layout.Match{
			PathMatch: m.PathMatch, Conditions: m.conditions, Backend: to, Origin: origin, Late: r.isGRPC() && m.isPattern(),
			Rank: layout.Rank{Created: r.Value.CreationTimestamp.Time, Namespace: r.Ref.Namespace, Name: r.Ref.Name, Rule: i, Match: n},
		})
	}
	return out, nil
}

// isGRPC reports whether servers are spoken to over HTTP/2.
func (r *read) isGRPC() bool { return r.Kind == "GRPCRoute" }

// invalid returns the backend of requests that cannot be served. For a call, 503 means that it is
// unavailable, and 500 would mean nothing.
func (r *read) invalid(b *backends, origin routing.Origin) string {
	if r.isGRPC() {
		return b.add(routing.Backend{Name: unavailable}, origin)
	}
	return b.answer(Invalid, policy.Answer{Status: 500}, origin)
}

// destination returns the backend or split of a match of a rule.
func (t *translation) destination(r *read, rule gatewayv1.HTTPRouteRule, m match, todo work, each []work, origin routing.Origin) (string, *problem) {
	closed := func(p *problem) string {
		r.resolve(t, p)
		return r.invalid(t.backends, origin)
	}
	filters, p := todo.filtersFor(m)
	if p != nil {
		return "", p.in("filters")
	}
	switch {
	case todo.closed != nil:
		return closed(todo.closed), nil
	case todo.redirect != nil:
		return t.backends.add(routing.Backend{Name: "hapsnap_redirect:" + digest(filters), Filters: filters}, origin), nil
	}
	var shares []routing.Share
	for n, ref := range rule.BackendRefs {
		found := t.backends.refer(r.Route, ref.BackendRef)
		if found.problem != nil {
			r.resolve(t, found.problem)
		}
		if each[n].closed != nil {
			found.problem = each[n].closed
			r.resolve(t, found.problem)
		}
		if found.weight <= 0 {
			continue
		}
		own, p := each[n].filtersFor(m)
		if p != nil {
			return "", p.in("backendRefs", n, "filters")
		}
		all := slices.Concat(filters, own)
		if (each[n].rewrite != nil) && todo.rewrite != nil {
			return "", (&problem{reason: string(gatewayv1.RouteReasonIncompatibleFilters), message: "the path is rewritten twice"}).in("backendRefs", n, "filters")
		}
		share := routing.Share{Weight: found.weight}
		if found.problem != nil {
			share.Backend = r.invalid(t.backends, origin)
		} else {
			share.Backend = t.backends.take(found, all, todo.timeout, r.isGRPC(), origin)
		}
		shares = append(shares, share)
	}
	if len(shares) == 0 {
		return r.invalid(t.backends, origin), nil
	}
	prefix := ""
	if todo.rewrite != nil || slices.ContainsFunc(each, func(w work) bool { return w.rewrite != nil }) {
		prefix = m.Path
	}
	return t.backends.split(shares, prefix, origin), nil
}

// resolve takes note of a reference that leads to nothing, and reports it once.
func (r *read) resolve(t *translation, p *problem) {
	if r.resolved.Fine() {
		r.resolved = attach.Verdict{Reason: p.reason, Message: p.message}
	}
	d := diag.Diagnostic{Severity: diag.Warning, Object: r.Ref, Position: r.Position("spec", "rules"), Message: p.message + "; requests for it are not served"}
	if !slices.Contains(t.found, d) {
		t.found = append(t.found, d)
	}
}

// model returns what was collected, sorted.
func (t *translation) model() routing.Model {
	var m routing.Model
	for _, file := range slices.Sorted(maps.Keys(t.certificates)) {
		c := t.certificates[file]
		m.Certificates = append(m.Certificates, c)
		m.Asked.Secrets = append(m.Asked.Secrets, types.NamespacedName(c.Secret))
	}
	for _, name := range slices.Sorted(maps.Keys(t.binds)) {
		b := t.binds[name]
		m.Binds = append(m.Binds, b.Bind)
		hosts, over := layout.Hosts(name, t.cfg.Form, b.listeners)
		m.Hosts = append(m.Hosts, hosts...)
		for _, o := range over {
			t.report(diag.Error, o.Match.Origin.Object, o.Match.Origin.Position, o.String()+"; what comes after is not served", "use fewer matches for one path")
			t.verdicts.partial(o.Match.Origin.Object, fmt.Sprintf("Dropped Rule %d: %s", o.Match.Rank.Rule, o))
		}
	}
	slices.SortFunc(m.Hosts, func(a, b routing.Host) int { return cmp.Compare(a.Key(), b.Key()) })
	used := map[string]bool{}
	for _, h := range m.Hosts {
		for _, r := range h.Routes {
			used[r.Backend] = true
		}
	}
	for _, name := range slices.Sorted(maps.Keys(t.backends.splits)) {
		if !used[name] {
			continue
		}
		s := t.backends.splits[name]
		m.Splits = append(m.Splits, s)
		for _, share := range s.Shares {
			used[share.Backend] = true
		}
	}
	for _, name := range slices.Sorted(maps.Keys(t.backends.byName)) {
		if used[name] {
			b := *t.backends.byName[name]
			slices.SortFunc(b.Origins, routing.Origin.Compare)
			m.Backends = append(m.Backends, b)
		}
	}
	return m
}
