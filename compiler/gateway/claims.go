package gateway

import (
	"fmt"
	"slices"

	gatewayv1 "sigs.k8s.io/gateway-api/apis/v1"

	"github.com/hapsnap/hapsnap/compiler/diag"
	"github.com/hapsnap/hapsnap/compiler/gateway/attach"
	"github.com/hapsnap/hapsnap/compiler/gateway/layout"
	"github.com/hapsnap/hapsnap/compiler/inputs"
	"github.com/hapsnap/hapsnap/compiler/options"
	"github.com/hapsnap/hapsnap/compiler/policy"
	"github.com/hapsnap/hapsnap/compiler/routing"
	"github.com/hapsnap/hapsnap/compiler/routing/hostname"
	"github.com/hapsnap/hapsnap/internal/manifests"
)

// claims is what a route and the objects to which it refers ask for, whatever other routes there are. When the route is
// attached, it is decided how much of this it gets. Claims never change once they are made, since translations share
// them, see [Memo].
type claims struct {
	inputs.Object[gatewayv1.HTTPRoute]
	attach.Route
	rules []ruleClaims
	// uses are the Services to which the rules lead.
	uses []use
	// references are those of a route of connections.
	references []reference
	// refused says why no rule of the route is served. resolved says which reference leads nowhere.
	refused, resolved attach.Verdict
	found             []diag.Diagnostic
	// own are the options of the route. options also have the defaults of its Gateway. If there are any, the route has
	// backends of its own.
	own, options options.Values
}

// ruleClaims are the claims of a rule: its matches with their backends, or why it has none.
type ruleClaims struct {
	wants
	matches []layout.Match
	problem *problem
	// bytes is the length of the options and filters in its backends.
	bytes int
}

// reader reads a route.
type reader struct {
	*source
	*claims
	under
}

// claimsOf reads a route. u says which client certificate the Gateway shows to servers, if any, and which objects above
// the route have options. claimsOf is a pure function of the route, of u, and of the answers of the source.
func claimsOf(s *source, o inputs.Object[gatewayv1.HTTPRoute], u under) *claims {
	r := reader{source: s, under: u, claims: &claims{Object: o, Route: attach.Route{Kind: o.Ref.Kind, Namespace: o.Ref.Namespace}}}
	if field := inputs.UnknownField(o.Value); field != "" {
		r.report(diag.Error, o.Position("spec"), unknownField(field)+"; the route is not served", "")
		r.refused = attach.Verdict{Reason: string(gatewayv1.RouteReasonUnsupportedValue), Message: unknownField(field)}
		return r.claims
	}
	for i, h := range o.Value.Spec.Hostnames {
		if message, hint := hostname.Check(hostname.Normal(string(h))); message != "" {
			r.report(diag.Error, o.Position("spec", "hostnames", i), fmt.Sprintf("hostname %q %s; the route is not served", h, message), hint)
			r.refused = attach.Verdict{Reason: string(gatewayv1.RouteReasonUnsupportedValue), Message: fmt.Sprintf("hostname %q %s", h, message)}
			return r.claims
		}
		r.Hosts = append(r.Hosts, hostname.Of(string(h)))
	}
	if r.isOfConnections() {
		r.readConnections()
		return r.claims
	}
	// Problems between options are reported once, without a Service.
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
	if own.Has("timeout-server") {
		for i, rule := range r.specRules() {
			if rule.Timeouts != nil {
				r.report(diag.Warning, r.Position("spec", "rules", i, "timeouts"), "the timeouts of this rule hold, and not annotation "+options.Prefix+"timeout-server", "")
			}
		}
	}
	for i, rule := range r.specRules() {
		var c ruleClaims
		if c.matches, c.problem = r.rule(i, rule, &c.wants); c.problem != nil {
			c.wants = wants{}
			c.matches = r.closedRule(i, rule, &c.wants)
		}
		c.bytes = c.wants.count() * (r.optionBytes() + filterBytes(rule))
		r.claims.rules = append(r.claims.rules, c)
	}
	return r.claims
}

// report adds a finding about the route.
func (c *claims) report(severity diag.Severity, at diag.Position, message, hint string) {
	c.found = append(c.found, diag.Diagnostic{Severity: severity, Object: c.Ref, Position: at, Message: message, Hint: hint})
}

// rule returns the matches of a rule, or why there are none. It adds everything to which they lead.
func (r *reader) rule(i int, rule gatewayv1.HTTPRouteRule, w *wants) ([]layout.Match, *problem) {
	matches, p := matchesOf(rule, r.form)
	if p != nil {
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
	if todo.sessions, p = sessionsOf(rule); p != nil {
		return nil, p.in("sessionPersistence")
	}
	if len(rule.BackendRefs) > mostBackends {
		return nil, tooManyBackends().in("backendRefs", mostBackends)
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
	origin := r.originOf(i)
	to := make([]string, len(matches))
	for n, m := range matches {
		if to[n], p = r.destination(rule, m, todo, each, w, origin); p != nil {
			return nil, p
		}
	}
	return r.layOut(i, matches, origin, to), nil
}

// originOf returns the origin of a rule.
func (c *claims) originOf(rule int) routing.Origin {
	at := []any{"spec", "rules", rule}
	return routing.Origin{Object: c.Ref, Position: c.Position(at...), Field: manifests.FieldPath(at)}
}

// mostBackends is how many backendRefs a rule may have. HAProxy has two rules for each, by its position, which the
// requests of all routes pass. The API server allows as many, but manifests need not have been there.
const mostBackends = 16

func tooManyBackends() *problem {
	return unsupported("a rule has %d backendRefs at most", mostBackends)
}

// layOut returns the matches of a rule in the form of package layout, with the backends to which they lead.
func (c *claims) layOut(rule int, matches []match, origin routing.Origin, to []string) []layout.Match {
	var out []layout.Match
	for n, m := range matches {
		out = append(out, layout.Match{
			PathMatch: m.PathMatch, Conditions: m.conditions, Backend: to[n], Origin: origin, Late: c.isGRPC() && m.isPattern(),
			Rank: layout.Rank{Created: c.Value.CreationTimestamp.Time, Namespace: c.Object.Ref.Namespace, Name: c.Ref.Name, Rule: rule, Match: n},
		})
	}
	return out
}

// isGRPC reports whether HAProxy speaks HTTP/2 to the servers of the route.
func (c *claims) isGRPC() bool { return c.Kind == "GRPCRoute" }

// invalid returns the backend for requests that cannot be served. A gRPC call is answered with 503, which means
// unavailable to its client. The answer 500 would mean nothing to it.
func (r *reader) invalid(w *wants, origin routing.Origin) string {
	if r.isGRPC() {
		return w.add(routing.Backend{Name: unavailable}, origin)
	}
	return w.add(routing.Backend{Name: Invalid, Filters: []policy.Filter{policy.Answer{Status: 500}}}, origin)
}

// destination returns the backend or split for a match of a rule.
func (r *reader) destination(rule gatewayv1.HTTPRouteRule, m match, todo work, each []work, w *wants, origin routing.Origin) (string, *problem) {
	closed := func(p *problem) string {
		r.resolve(p)
		return r.invalid(w, origin)
	}
	filters, p := todo.filtersFor(m)
	if p != nil {
		return "", p.in("filters")
	}
	copies, p := mirrored(r, todo, w, origin)
	if p != nil {
		return "", p.in("filters")
	}
	filters = append(filters, copies...)
	switch {
	case r.options.Closed:
		return w.addClosed(origin), nil
	case todo.closed != nil:
		return closed(todo.closed), nil
	case todo.redirect != nil:
		return r.redirect(filters, w, origin), nil
	}
	var shares []routing.Share
	for n, ref := range rule.BackendRefs {
		found := r.refer(r.Route, ref.BackendRef)
		r.use(found)
		if found.problem != nil {
			r.resolve(found.problem)
		}
		if each[n].closed != nil {
			found.problem = each[n].closed
			r.resolve(found.problem)
		}
		if found.weight <= 0 {
			continue
		}
		own, p := each[n].filtersFor(m)
		if p != nil {
			return "", p.in("backendRefs", n, "filters")
		}
		copies, p := mirrored(r, each[n], w, origin)
		if p != nil {
			return "", p.in("backendRefs", n, "filters")
		}
		all := slices.Concat(filters, own, copies)
		if (each[n].rewrite != nil) && todo.rewrite != nil {
			return "", (&problem{reason: string(gatewayv1.RouteReasonIncompatibleFilters), message: "the path is rewritten twice"}).in("backendRefs", n, "filters")
		}
		share := routing.Share{Weight: found.weight}
		if found.problem != nil {
			share.Backend = r.invalid(w, origin)
		} else {
			share.Backend = r.take(found, all, todo, w, origin)
		}
		shares = append(shares, share)
	}
	if len(shares) == 0 {
		return r.invalid(w, origin), nil
	}
	prefix := ""
	if todo.rewrite != nil || slices.ContainsFunc(each, func(w work) bool { return w.rewrite != nil }) {
		prefix = m.Path
	}
	return w.split(shares, prefix+r.key(), origin), nil
}

// use notes the target of a permitted reference.
func (c *claims) use(found reference) {
	if found.use.service.Name != "" && !slices.Contains(c.uses, found.use) {
		c.uses = append(c.uses, found.use)
	}
}

// specRules returns the rules of a route. A route without rules has one rule that leads nowhere.
func (c *claims) specRules() []gatewayv1.HTTPRouteRule {
	if len(c.Value.Spec.Rules) == 0 {
		return []gatewayv1.HTTPRouteRule{{}}
	}
	return c.Value.Spec.Rules
}

// lost says what happens to the requests for a reference that leads nowhere.
func (c *claims) lost() string {
	if c.isOfConnections() {
		return "connections for it are closed"
	}
	return "requests for it are not served"
}

// resolve notes a reference that leads nowhere, and reports it once.
func (c *claims) resolve(p *problem) {
	if c.resolved.Fine() {
		c.resolved = attach.Verdict{Reason: p.reason, Message: p.message}
	}
	d := diag.Diagnostic{Severity: diag.Warning, Object: c.Ref, Position: c.Position("spec", "rules"), Message: p.message + "; " + c.lost()}
	if !slices.Contains(c.found, d) {
		c.found = append(c.found, d)
	}
}
