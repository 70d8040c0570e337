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
	"github.com/hapsnap/hapsnap/compiler/policy"
	"github.com/hapsnap/hapsnap/compiler/routing"
	"github.com/hapsnap/hapsnap/compiler/routing/hostname"
	"github.com/hapsnap/hapsnap/internal/manifests"
)

// mostParts is how many names of headers and parameters, and expressions, the routes of a namespace may
// look at: each costs every request with conditions.
const mostParts = 64

// reader reads what the rules of routes say.
type reader struct {
	*findings
	cfg      Config
	backends *backends
	parts    map[string]map[string]bool // that conditions look at, by namespace
}

// read is a route, read once for all of its parents.
type read struct {
	inputs.Object[gatewayv1.HTTPRoute]
	attach.Route
	matches []layout.Match
	// uses are what the rules lead to.
	uses []use
	// shown are the matches by the certificate that servers are shown.
	shown map[string][]layout.Match
	// references are those of a route of connections.
	references []reference
	// refused says why no rule of the route is served, dropped why some are not, and resolved which
	// reference leads to nothing.
	refused, dropped, resolved attach.Verdict
}

// read reads the rules of a route.
func (t *reader) read(o inputs.Object[gatewayv1.HTTPRoute]) *read {
	r := &read{Object: o, Route: attach.Route{Kind: o.Ref.Kind, Namespace: o.Ref.Namespace}}
	if field := inputs.UnknownField(o.Value); field != "" {
		t.report(diag.Error, o.Ref, o.Position("spec"), unknownField(field)+"; the route is not served", "")
		r.refused = attach.Verdict{Reason: string(gatewayv1.RouteReasonUnsupportedValue), Message: unknownField(field)}
		return r
	}
	for i, h := range o.Value.Spec.Hostnames {
		if message, hint := hostname.Check(hostname.Normal(string(h))); message != "" {
			t.report(diag.Error, o.Ref, o.Position("spec", "hostnames", i), fmt.Sprintf("hostname %q %s; the route is not served", h, message), hint)
			r.refused = attach.Verdict{Reason: string(gatewayv1.RouteReasonUnsupportedValue), Message: fmt.Sprintf("hostname %q %s", h, message)}
			return r
		}
		r.Hosts = append(r.Hosts, hostname.Of(string(h)))
	}
	if r.isOfConnections() {
		t.readConnections(r)
		return r
	}
	rules := r.rules()
	dropped := 0
	for i, rule := range rules {
		matches, p := t.rule(r, i, rule, "")
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

// matchesFor returns the matches of a route for Gateways that show a certificate to servers over TLS, or none.
func (t *reader) matchesFor(r *read, shown string) []layout.Match {
	if shown == "" || r.isOfConnections() {
		return r.matches
	}
	if out, known := r.shown[shown]; known {
		return out
	}
	var out []layout.Match
	for i, rule := range r.rules() {
		matches, _ := t.rule(r, i, rule, shown) // what is wrong was said
		out = append(out, matches...)
	}
	if r.shown == nil {
		r.shown = map[string][]layout.Match{}
	}
	r.shown[shown] = out
	return out
}

// rule returns the matches of a rule and where they lead, or why there are none. Servers are shown a
// certificate over TLS, if there is one.
func (t *reader) rule(r *read, i int, rule gatewayv1.HTTPRouteRule, shown string) ([]layout.Match, *problem) {
	if rule.SessionPersistence != nil {
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
	if todo.retry, p = retryOf(rule); p != nil {
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
		to, p := t.destination(r, rule, m, todo, each, shown, origin)
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
func (t *reader) destination(r *read, rule gatewayv1.HTTPRouteRule, m match, todo work, each []work, shown string, origin routing.Origin) (string, *problem) {
	closed := func(p *problem) string {
		r.resolve(t, p)
		return r.invalid(t.backends, origin)
	}
	filters, p := todo.filtersFor(m)
	if p != nil {
		return "", p.in("filters")
	}
	copies, p := t.mirrored(r, todo, shown, origin)
	if p != nil {
		return "", p.in("filters")
	}
	filters = append(filters, copies...)
	switch {
	case todo.closed != nil:
		return closed(todo.closed), nil
	case todo.redirect != nil:
		return t.backends.add(routing.Backend{Name: "hapsnap_redirect:" + digest(filters), Filters: filters}, origin), nil
	}
	var shares []routing.Share
	for n, ref := range rule.BackendRefs {
		found := t.backends.refer(r.Route, ref.BackendRef)
		r.use(found)
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
		copies, p := t.mirrored(r, each[n], shown, origin)
		if p != nil {
			return "", p.in("backendRefs", n, "filters")
		}
		all := slices.Concat(filters, own, copies)
		if (each[n].rewrite != nil) && todo.rewrite != nil {
			return "", (&problem{reason: string(gatewayv1.RouteReasonIncompatibleFilters), message: "the path is rewritten twice"}).in("backendRefs", n, "filters")
		}
		share := routing.Share{Weight: found.weight}
		if found.problem != nil {
			share.Backend = r.invalid(t.backends, origin)
		} else {
			share.Backend = t.backends.take(found, all, todo, r.isGRPC(), shown, origin)
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
	return t.backends.split(shares, prefix+shown, origin), nil
}

// use takes note of what a reference leads to that may be referred to.
func (r *read) use(found reference) {
	if found.use.service.Name != "" && !slices.Contains(r.uses, found.use) {
		r.uses = append(r.uses, found.use)
	}
}

// rules returns the rules of a route. One without any has one that leads nowhere.
func (r *read) rules() []gatewayv1.HTTPRouteRule {
	if len(r.Value.Spec.Rules) == 0 {
		return []gatewayv1.HTTPRouteRule{{}}
	}
	return r.Value.Spec.Rules
}

// lost says what becomes of what a reference that leads to nothing would have.
func (r *read) lost() string {
	if r.isOfConnections() {
		return "connections for it are closed"
	}
	return "requests for it are not served"
}

// resolve takes note of a reference that leads to nothing, and reports it once.
func (r *read) resolve(t *reader, p *problem) {
	if r.resolved.Fine() {
		r.resolved = attach.Verdict{Reason: p.reason, Message: p.message}
	}
	d := diag.Diagnostic{Severity: diag.Warning, Object: r.Ref, Position: r.Position("spec", "rules"), Message: p.message + "; " + r.lost()}
	if !slices.Contains(t.found, d) {
		t.found = append(t.found, d)
	}
}

// costly takes note of the parts of requests that matches look at, and says which one is too much.
func (t *reader) costly(namespace string, matches []match) *problem {
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
