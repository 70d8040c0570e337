package gateway

import (
	"fmt"
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	gatewayv1 "sigs.k8s.io/gateway-api/apis/v1"

	"github.com/hapsnap/hapsnap/compiler/access"
	"github.com/hapsnap/hapsnap/compiler/diag"
	"github.com/hapsnap/hapsnap/compiler/gateway/attach"
	"github.com/hapsnap/hapsnap/compiler/gateway/layout"
	"github.com/hapsnap/hapsnap/compiler/inputs"
	"github.com/hapsnap/hapsnap/compiler/options"
	"github.com/hapsnap/hapsnap/compiler/policy"
	"github.com/hapsnap/hapsnap/compiler/routing"
)

// demand is what the options of a backend name, and what is to be had before anything is served.
type demand struct {
	lists []access.Lists
	users []*access.Users
	// policies are those of the filters that look for attacks.
	policies []*access.Policy
	found    []diag.Diagnostic
	// refused says that what protects cannot be had, such as the Service that is to be asked for authentication.
	refused bool
}

// readOptions reads the annotations of a route. The problems of options together are said once, without a Service.
func (r *reader) readOptions() {
	own, problems := options.Read(options.OnRoute, r.Value.Annotations)
	_, more, closed := options.Resolve(own)
	own.Closed = own.Closed || closed
	for _, p := range slices.Concat(problems, more[0]) {
		r.report(p.Severity, r.Position("metadata", "annotations", p.Annotation), p.Message, p.Hint)
	}
	r.own, r.options = own, own
	for _, l := range slices.Backward(r.levels) {
		r.options = r.options.Inherit(l.defaults)
	}
	if !own.Has("timeout-server") {
		return
	}
	for i, rule := range r.specRules() {
		if rule.Timeouts != nil {
			r.report(diag.Warning, r.Position("spec", "rules", i, "timeouts"), "the timeouts of this rule hold, and not annotation "+options.Prefix+"timeout-server", "")
		}
	}
}

// misplaced reports the options on an object of a kind that has none, and returns why it is not served if one of them would
// protect something.
func misplaced(o diag.Object, annotations map[string]string, at func(path ...any) diag.Position, report func(severity diag.Severity, at diag.Position, message, hint string)) string {
	problems, protects := options.Misplaced(o.Kind, annotations)
	for _, p := range problems {
		report(p.Severity, at("metadata", "annotations", p.Annotation), p.Message, p.Hint)
	}
	if !protects {
		return ""
	}
	return fmt.Sprintf("an annotation protects something, and a %s has no options", o.Kind)
}

// ask gives a backend of a route what the options of the route ask for, before what its rule does. The filters of the
// Service follow those of the rule.
func (r *reader) ask(made *routing.Backend, ref reference, w *wants) *demand {
	byService := levelOfService(ref)
	if !r.needsOwn() && byService == nil || len(made.Targets) == 0 {
		return nil
	}
	var port options.Values
	if ref.port.AppProtocol != nil {
		port = options.AppProtocol(*ref.port.AppProtocol)
	}
	offered, _ := options.Read(options.OnService, ref.service.Value.Annotations)
	var tls *policy.TLS
	if made.Upstream != nil {
		tls = made.Upstream.TLS // of a policy, perhaps
	}
	both, _, _ := options.Resolve(r.options.Inherit(port), offered)
	out := r.protect(made, w, byService)
	if upstream := both.Upstream; upstream != (policy.Upstream{}) || tls != nil {
		upstream.TLS = tls
		made.Upstream = &upstream
	}
	return out
}

// needsOwn reports whether the route has backends of its own: options ask for something, its own or those of its Gateway.
func (r *reader) needsOwn() bool { return r.options.NeedsBackend() || len(r.levels) > 0 }

// protect gives a backend what options do with requests: who may send them, and what becomes of these before the filters
// of a rule. What the Service protects, if there is one, holds besides.
func (r *reader) protect(made *routing.Backend, w *wants, service *level) *demand {
	out, layers := &demand{}, r.layers()
	if service != nil {
		settings, _, _ := options.Resolve(service.protects.Inherit(service.defaults)) // which answers preflight requests first
		layers = append(layers, layer{settings: settings, asks: r.asker(service.ref.Namespace, service.spot), last: true})
	}
	out.join(made, layers, w)
	for _, l := range append(slices.Clone(r.levels), service) {
		if l != nil {
			made.Origins = append(made.Origins, l.origin())
		}
	}
	return out
}

// servicePort returns what a port of a Service leads to that is asked for authentication.
func servicePort(service inputs.Object[corev1.Service], number int) access.Port {
	port := gatewayv1.PortNumber(number)
	all := source{services: map[types.NamespacedName]inputs.Object[corev1.Service]{{Namespace: service.Ref.Namespace, Name: service.Ref.Name}: service}, world: &attach.World{}}
	found := all.refer(attach.Route{Kind: "HTTPRoute", Namespace: service.Ref.Namespace}, gatewayv1.BackendRef{
		BackendObjectReference: gatewayv1.BackendObjectReference{Name: gatewayv1.ObjectName(service.Ref.Name), Port: &port},
	})
	if found.problem != nil {
		return access.Port{Message: found.problem.message}
	}
	// That of Ingresses has the plain name, and may lose other headers of clients.
	return access.Port{Name: found.name + ":routes", Targets: []routing.Target{found.target}}
}

// closedBackend is the backend of routes whose options protect them and cannot be followed: without servers it
// answers 503.
const closedBackend = routing.Unavailable + ":options"

func (w *wants) addClosed(origin routing.Origin) string {
	return w.add(routing.Backend{Name: closedBackend}, origin)
}

// closeRefused closes the matches of a route that is left out for what it says, and that protects something.
func (t *routes) closeRefused(r *read) {
	var w wants
	r.matches = slices.Clone(r.matches)
	for i := range r.matches {
		r.matches[i].Backend = w.addClosed(r.matches[i].Origin)
	}
	t.backends.merge(w)
}

// barred is a host that is closed for the routes of a namespace: one of them protects something there, and has
// not even closed matches. Only routes of its namespace lead to what it protects, as a rule.
type barred struct {
	namespace string
	hosts     []string
	by        routing.Origin
}

// bar closes the hosts of a route that protects something for the other routes of its namespace.
func (t *routes) bar(r *read) {
	t.barred = append(t.barred, barred{r.Object.Ref.Namespace, r.Hosts, routing.Origin{Object: r.Ref, Position: r.Position("spec"), Field: "spec"}})
}

// closeBarred closes what is barred, once all routes are attached.
func (t *routes) closeBarred() {
	for _, x := range t.barred {
		var w wants
		for _, b := range t.binds {
			for _, l := range b.listeners {
				for i, m := range l.Matches {
					if m.Rank.Namespace == x.namespace && (len(x.hosts) == 0 || slices.ContainsFunc(x.hosts, func(h string) bool { _, both := layout.Common(h, m.Host); return both })) {
						l.Matches[i].Backend = w.addClosed(x.by)
					}
				}
			}
		}
		t.backends.merge(w)
	}
}

// closedRule returns the matches of a rule that is not served, if options of the route protect it: else its requests
// might match a rule that does not.
func (r *reader) closedRule(i int, rule gatewayv1.HTTPRouteRule, w *wants) []layout.Match {
	if !r.own.Protect() {
		return nil
	}
	matches, p := matchesOf(rule, r.form)
	if p != nil {
		return nil
	}
	origin := r.originOf(i)
	return r.layOut(i, matches, origin, slices.Repeat([]string{w.addClosed(origin)}, len(matches)))
}

// redirect returns the backend that redirects as filters say, after what the options of the route do.
func (r *reader) redirect(filters []policy.Filter, w *wants, origin routing.Origin) string {
	made := routing.Backend{Filters: filters}
	if !r.needsOwn() {
		made.Name = "hapsnap_redirect:" + digest(filters)
		return w.add(made, origin)
	}
	made.Name = "hapsnap_redirect:" + digest(filters, r.Kind, r.Route.Namespace, r.Ref.Name, r.key())
	demand := r.protect(&made, w, nil)
	w.backends = append(w.backends, wanted{made, origin, demand})
	return made.Name
}

// demand takes note of what the options of a backend name.
func (b *backends) demand(x wanted) {
	if x.demand != nil {
		b.demands[x.Name] = x.demand
	}
}

// takeDemands takes what the options of backends name that are used. Where something of it cannot be had, nothing is
// served.
func (b *backends) takeDemands(used map[string]bool) {
	for _, name := range slices.Sorted(maps.Keys(b.demands)) {
		d := b.demands[name]
		if !used[name] {
			continue
		}
		b.tell(d.found...)
		usable := !d.refused
		for _, l := range d.lists {
			usable = b.access.Lists(l) && usable
		}
		for _, u := range d.users {
			b.access.Users(*u)
		}
		for _, p := range d.policies {
			filters, ok := b.access.Policy(p, b.byName[name].Filters)
			b.byName[name].Filters, usable = filters, usable && ok
		}
		if !usable {
			shut(b.byName[name])
		}
	}
}

// shut takes everything from a backend that is to answer 503: what protects it cannot be had, or would do something else
// than was asked.
func shut(b *routing.Backend) {
	b.Targets, b.Filters, b.Protection, b.Upstream = nil, nil, nil, nil
}
