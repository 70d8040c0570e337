package gateway

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	gatewayv1 "sigs.k8s.io/gateway-api/apis/v1"

	"github.com/hapsnap/hapsnap/compiler/access"
	"github.com/hapsnap/hapsnap/compiler/diag"
	"github.com/hapsnap/hapsnap/compiler/gateway/attach"
	"github.com/hapsnap/hapsnap/compiler/gateway/layout"
	"github.com/hapsnap/hapsnap/compiler/inputs"
	"github.com/hapsnap/hapsnap/compiler/options"
	"github.com/hapsnap/hapsnap/compiler/policy"
	"github.com/hapsnap/hapsnap/compiler/routing"
	"github.com/hapsnap/hapsnap/internal/manifests"
)

// demand is what the options of a backend need before it serves anything.
type demand struct {
	lists []access.Lists
	users []*access.Users
	// policies are the policies of the filters that look for attacks.
	policies []*access.Policy
	found    []diag.Diagnostic
	// refused says that something that protects the backend cannot be used, such as the Service that should be asked
	// for authentication.
	refused bool
}

// misplaced reports options on an object of a kind that cannot have any. If one of them would protect something, it
// returns why the object is not served.
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

// ask gives a backend of a route what the options of the route ask for. That comes before what the rule does. The
// filters of the Service come after those of the rule.
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
		tls = made.Upstream.TLS // a policy may have set it
	}
	both, _, _ := options.Resolve(r.options.Inherit(port), offered)
	out := r.protect(made, w, byService)
	if upstream := both.Upstream; upstream != (policy.Upstream{}) || tls != nil {
		upstream.TLS = tls
		made.Upstream = &upstream
	}
	return out
}

// needsOwn reports whether the route has backends of its own, because options ask for something: its own, or those of
// its Gateway.
func (r *reader) needsOwn() bool { return r.options.NeedsBackend() || len(r.levels) > 0 }

// protect gives a backend what options do with requests before the filters of a rule: who may send them, and how they
// are changed. The protection of the Service, if there is one, applies in addition.
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

// servicePort returns the target of a port of a Service that is asked for authentication.
func servicePort(service inputs.Object[corev1.Service], number int) access.Port {
	port := gatewayv1.PortNumber(number)
	all := source{services: inputs.ByName([]inputs.Object[corev1.Service]{service}), world: &attach.World{}}
	found := all.refer(attach.Route{Kind: "HTTPRoute", Namespace: service.Ref.Namespace}, gatewayv1.BackendRef{
		BackendObjectReference: gatewayv1.BackendObjectReference{Name: gatewayv1.ObjectName(service.Ref.Name), Port: &port},
	})
	if found.problem != nil {
		return access.Port{Message: found.problem.message}
	}
	// The backend for Ingresses has the plain name, and may remove other headers of clients.
	return access.Port{Name: found.name + ":routes", Targets: []routing.Target{found.target}}
}

// closedBackend is the backend of routes with options that protect them and cannot be used. It has no servers, so it
// answers 503.
const closedBackend = routing.Unavailable + ":options"

func (w *wants) addClosed(origin routing.Origin) string {
	return w.add(routing.Backend{Name: closedBackend}, origin)
}

// closeRefused closes the matches of a route that is left out and protects something.
func (t *routes) closeRefused(r *read) {
	var w wants
	r.matches = slices.Clone(r.matches)
	for i := range r.matches {
		r.matches[i].Backend = w.addClosed(r.matches[i].Origin)
	}
	t.backends.merge(w)
}

// barred is a host that is closed for the routes of a namespace. One of these routes protects something there, and even
// its closed matches are dropped. Usually, only routes of its namespace lead to what it protects.
type barred struct {
	namespace string
	hosts     []string
	by        routing.Origin
}

// bar closes the hosts of a route that protects something, for the other routes of its namespace.
func (t *routes) bar(r *read) {
	t.barred = append(t.barred, barred{r.Object.Ref.Namespace, r.Hosts, routing.Origin{Object: r.Ref, Position: r.Position("spec"), Field: "spec"}})
}

// closeBarred closes the barred hosts, after all routes are attached.
func (t *routes) closeBarred() {
	if len(t.barred) == 0 {
		return
	}
	barred, closed := map[string]*layout.HostSet{}, map[string]*layout.HostSet{} // by namespace
	for _, x := range t.barred {
		if barred[x.namespace] == nil {
			barred[x.namespace], closed[x.namespace] = &layout.HostSet{}, &layout.HostSet{}
		}
		if len(x.hosts) == 0 {
			barred[x.namespace].Add("")
		}
		for _, h := range x.hosts {
			barred[x.namespace].Add(h)
		}
	}
	for _, b := range t.binds {
		for _, l := range b.listeners {
			for i, m := range l.Matches {
				if hosts := barred[m.Rank.Namespace]; hosts != nil && hosts.Overlaps(m.Host) {
					closed[m.Rank.Namespace].Add(m.Host)
					l.Matches[i].Backend = closedBackend
				}
			}
		}
	}
	var w wants
	for _, x := range t.barred {
		if len(x.hosts) == 0 && closed[x.namespace].Overlaps("") || slices.ContainsFunc(x.hosts, closed[x.namespace].Overlaps) {
			w.addClosed(x.by)
		}
	}
	t.backends.merge(w)
}

// closedRule returns the matches of a rule that is not served, if options of the route protect it. Without them, its
// requests might match a rule without that protection.
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

// redirect returns the backend that redirects as filters say, after the options of the route had their effect.
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

// deny makes a backend answer 503 and removes everything else from it. It is for a backend whose protection is missing,
// or would do something other than its author asked for.
func deny(b *routing.Backend) {
	b.Targets, b.Filters, b.Protection, b.Upstream = nil, nil, nil, nil
}

// level is an object whose options apply to all requests that come through it, or go to it, in addition to those of the
// route. It is a Gateway, a ListenerSet or a Service.
type level struct {
	ref      diag.Object
	at       func(path ...any) diag.Position
	protects options.Values // no route can weaken this
	defaults options.Values // a route may set this differently
	key      string         // differs between objects, and between versions of an object
}

// levelOf reads the options of an object. It returns nil if the object has none.
func levelOf(on options.Place, ref diag.Object, at func(path ...any) diag.Position, annotations map[string]string) (*level, []options.Problem) {
	values, problems := options.Read(on, annotations)
	if len(problems) == 0 && !values.NeedsBackend() {
		return nil, nil
	}
	_, more, closed := options.Resolve(values)
	out := &level{ref: ref, at: at}
	values.Closed = values.Closed || closed
	out.protects, out.defaults = values.Divide()
	var given []any
	for name, value := range annotations {
		if strings.HasPrefix(name, options.Prefix) {
			given = append(given, fmt.Sprint(name, "=", value, at("metadata", "annotations", name)))
		}
	}
	slices.SortFunc(given, func(a, b any) int { return cmp.Compare(fmt.Sprint(a), fmt.Sprint(b)) })
	out.key = ref.String() + digest(given...)
	return out, slices.Concat(problems, more[0])
}

// spot returns the position of an option.
func (l *level) spot(option string) access.Spot {
	at := []any{"metadata", "annotations", options.Prefix + option}
	return access.Spot{Origin: routing.Origin{Object: l.ref, Position: l.at(at...), Field: manifests.FieldPath(at)}, Title: "annotation " + options.Prefix + option}
}

// origin returns the position of the options.
func (l *level) origin() routing.Origin {
	return routing.Origin{Object: l.ref, Position: l.at("metadata", "annotations"), Field: "metadata.annotations"}
}

// under says for what the claims of a route are made: the client certificate that the Gateway shows to servers, and the
// objects whose options apply, the outermost first.
type under struct {
	shown  string
	levels []*level
}

// key returns a text that differs between two of these.
func (u under) key() string {
	out := []string{u.shown}
	for _, l := range u.levels {
		out = append(out, l.key)
	}
	return strings.Join(out, "|")
}

// readLevel reads the options of a Gateway or a ListenerSet. If one of them protects something and cannot be used, it
// returns why the object serves nothing.
func (t *gateways) readLevel(ref diag.Object, at func(path ...any) diag.Position, annotations map[string]string) string {
	l, problems := levelOf(options.OnGateway, ref, at, annotations)
	for _, p := range problems {
		t.report(p.Severity, ref, at("metadata", "annotations", p.Annotation), p.Message, p.Hint)
	}
	if l == nil {
		return ""
	}
	if l.protects.Closed {
		return fmt.Sprintf("an annotation protects something, and cannot be used on this %s", ref.Kind)
	}
	if l.protects.NeedsBackend() || l.defaults.NeedsBackend() {
		t.levels[ref] = l
	}
	return ""
}

// under returns for what the claims of routes of a listener are made.
func (t *routes) under(l *attach.Listener) under {
	out := under{shown: l.Gateway.Shown}
	for _, ref := range []diag.Object{l.Gateway.Ref, l.Owner.By} {
		if level := t.levels[ref]; level != nil && !slices.Contains(out.levels, level) {
			out.levels = append(out.levels, level)
		}
	}
	return out
}

// unguarded reports whether a listener routes connections although its Gateway or ListenerSet has options that protect.
// These have no effect for connections. unguarded also adds a finding.
func (t *routes) unguarded(l *attach.Listener) bool {
	u := t.under(l)
	i := slices.IndexFunc(u.levels, func(x *level) bool { return x.protects.Protect() })
	if i < 0 {
		return false
	}
	by := u.levels[i]
	t.addNew(diag.Diagnostic{
		Severity: diag.Error, Object: by.ref, Position: by.at("metadata", "annotations"),
		Message: fmt.Sprintf("listener %s routes whole connections, which its annotations protect and cannot: they are closed", l.Spec.Name),
		Hint:    "have it on a Gateway of its own, without them",
	})
	return true
}

// layer is the protection that one object asks for.
type layer struct {
	settings options.Settings
	asks     access.Asker
	// all says that all filters of the object apply, not only those that authenticate. last says that they come after
	// those of the rule, since a route must not change what a Service learns about a user.
	all, last bool
}

// asker returns an asker for the options of an object.
func (r *reader) asker(namespace string, spot func(option string) access.Spot) access.Asker {
	return access.Asker{Namespace: namespace, Spot: spot, SharedServices: r.sharedServices, Inspection: r.inspection, Service: r.service, Port: servicePort}
}

// layers returns the layers that protect a backend of a route, the outermost first: the Gateway of the route, its
// ListenerSet, and the route itself.
func (r *reader) layers() []layer {
	var out []layer
	for _, l := range r.levels {
		if l.protects.Protect() {
			settings, _, _ := options.Resolve(l.protects)
			out = append(out, layer{settings: settings, asks: r.asker(l.ref.Namespace, l.spot)})
		}
	}
	settings, _, _ := options.Resolve(r.options)
	return append(out, layer{settings: settings, asks: r.asker(r.Route.Namespace, r.spotOf), all: true})
}

// spotOf returns the position of an option of the route, which may come from its Gateway or ListenerSet.
func (r *reader) spotOf(option string) access.Spot {
	if !r.own.Has(option) {
		for _, l := range slices.Backward(r.levels) {
			if l.defaults.Has(option) {
				return l.spot(option)
			}
		}
	}
	return (&level{ref: r.Ref, at: r.Position}).spot(option)
}

// join gives a backend the protection of several layers, all of which apply.
func (out *demand) join(made *routing.Backend, layers []layer, w *wants) {
	var first, last []policy.Filter
	var all policy.Protection
	alone := len(layers) == 1
	for i := range layers {
		l := &layers[i]
		s := &l.settings
		out.lists = append(out.lists, access.FindLists(&s.Protection, l.asks))
		if s.Basic != nil {
			out.users = append(out.users, access.FindUsers(s, l.asks))
		}
		if s.External != nil {
			asked := access.FindService(s, l.asks)
			if out.found = append(out.found, asked.Found...); asked.Refused != nil {
				out.found, out.refused = append(out.found, *asked.Refused), true
				return
			}
			w.add(asked.Backend, asked.Origin)
		}
		if d := access.FindAgents(s, l.asks); d != nil {
			out.found, out.refused = append(out.found, *d), true
			return
		}
		if s.WAF != nil {
			out.policies = append(out.policies, access.FindPolicy(s, l.asks))
		}
		ways, rest := s.Ways()
		if l.all {
			ways = slices.Concat(ways, rest)
		}
		filters := &first
		if l.last {
			filters = &last
		}
		p := s.Protection
		if !alone {
			rate, fits := all.Rate.With(p.Rate)
			if !fits {
				out.found, out.refused = append(out.found, l.asks.Spot("rate-limit").Closes(" counts in another way than that of its Gateway, ListenerSet or Service, and both hold", "use the same period, header and exempt networks, or leave one out")), true
				return
			}
			all.Rate, all.MaxBody = rate, smaller(all.MaxBody, p.MaxBody)
			p.Rate, p.MaxBody, p.Layer = nil, 0, i+1
			if p.Any() || s.Basic != nil || s.External != nil {
				*filters = append(*filters, policy.Guard{Protection: p})
			}
		} else {
			all = p
		}
		*filters = append(*filters, ways...)
	}
	made.Filters = slices.Concat(first, made.Filters, last)
	if all.Any() {
		made.Protection = &all
	}
}

// smaller returns the smaller limit. 0 means no limit.
func smaller(a, b int64) int64 {
	if a == 0 || b == 0 {
		return max(a, b)
	}
	return min(a, b)
}

// levelOfService returns what the annotations of a Service ask for, besides how to speak to it. It returns nil if they
// ask for nothing else.
func levelOfService(ref reference) *level {
	l, _ := levelOf(options.OnService, ref.service.Ref, ref.service.Position, ref.service.Value.Annotations)
	if l == nil || !l.protects.Protect() {
		return nil
	}
	return l
}
