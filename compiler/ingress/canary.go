package ingress

import (
	"fmt"
	"slices"
	"strings"

	"github.com/hapsnap/hapsnap/compiler/diag"
	"github.com/hapsnap/hapsnap/compiler/options"
	"github.com/hapsnap/hapsnap/compiler/policy"
	"github.com/hapsnap/hapsnap/compiler/routing"
	"github.com/hapsnap/hapsnap/compiler/routing/hostname"
	"github.com/hapsnap/hapsnap/internal/printable"
	"github.com/hapsnap/hapsnap/snapshots"
)

// canary is an Ingress that shares the routes of others, and how.
type canary struct {
	*claims
	options.Canary
}

// canary adds a canary to the routes that it shares. All others must have been
// added before. What it sends requests to has the backends' options of those
// who have the routes: it is no way around what protects them.
func (t *merge) canary(c *claims) {
	t.add(c.found...)
	if c.canary == nil {
		return
	}
	for _, r := range c.rules {
		for _, p := range r.paths {
			t.share(canary{c, *c.canary}, r.host, p)
		}
	}
}

// share adds a canary to one route, under all names of its host.
func (t *merge) share(c canary, host string, p path) {
	match, taken := t.sharedMatch(host, p)
	at := p.origin
	what := fmt.Sprintf("path %s (%s)%s", printable.Quoted(orSlash(p.text)), p.kind, ofHost(host))
	main := t.claimOf(host, match)
	switch {
	case !taken:
		t.report(diag.Warning, c.Claimant, at.Position, what+" is no route that the canary could share; it gets nothing",
			"a canary has the host, path and pathType of another Ingress's route")
		return
	case main.by.Ref.Namespace != c.Ref.Namespace:
		t.report(diag.Error, c.Claimant, at.Position, what+" is not shared: it is a route of "+main.by.Ref.String(), "a canary is in the namespace of the Ingress whose routes it shares")
		return
	case main.sharedBy != nil:
		t.reportLost(diag.Error, c.Claimant, main.sharedBy.Claimant, at.Position, what+" is not shared: it was taken by the canary "+main.sharedBy.Precedes(c.Claimant), "remove one of the two")
		return
	}
	target, ok := t.canaryTarget(c, main, p.backend)
	if !ok {
		return
	}
	before, backend := t.sharedRoutes(c, main, target, at)
	for _, name := range t.namesOf(main.by, host) {
		routes := t.hosts[hostname.Of(name)].routes
		match, _ := t.sharedMatch(name, p)
		if other, ok := routes[match]; ok && other.by.Ref == main.by.Ref && other.backend == main.backend {
			other.before, other.backend, other.sharedBy = before, backend, c.claims
			routes[match] = other
		}
	}
}

// sharedMatch returns the match that a path of a canary shares. One that is
// ImplementationSpecific means what it means to the Ingress that has the route.
func (t *merge) sharedMatch(host string, p path) (routing.PathMatch, bool) {
	for _, exact := range []bool{false, true} {
		form := routing.NormalForm
		if h := t.hosts[hostname.Of(host)]; h != nil {
			form = h.form
		}
		match := p.matchIn(exact, form)
		if t.claimOf(host, match).backend != "" {
			return match, true
		}
	}
	match := routing.PathMatch{Type: routing.Expression, Path: p.text}
	return match, p.isSpecific() && t.claimOf(host, match).backend != ""
}

// claimOf returns who has a route, or the zero claim.
func (t *merge) claimOf(host string, match routing.PathMatch) claim {
	h := t.hosts[hostname.Of(host)]
	if h == nil {
		return claim{}
	}
	return h.routes[match]
}

// namesOf returns a host and the aliases that an Ingress gives it.
func (t *merge) namesOf(by *claims, host string) []string {
	names := []string{host}
	if slices.Contains(by.ruleHosts, hostname.Normal(host)) {
		names = append(names, t.aliases[by.Ref]...)
	}
	return names
}

// canaryTarget returns what a canary sends the requests of a route to, unless
// something stands in the way.
func (t *merge) canaryTarget(c canary, main claim, d demand) (resolved, bool) {
	at, r := d.origin.Position, d.resolved
	if d.problem != nil {
		problem := *d.problem
		problem.Message += "; the canary gets nothing"
		t.add(problem)
	}
	served := t.backends[main.backend].Targets
	switch {
	case len(r.targets) != 1:
		return r, false
	case len(served) != 1:
		t.report(diag.Warning, c.Claimant, at, "the canary gets nothing, since the route of "+main.by.Ref.String()+" is answered 503", "")
		return r, false
	case served[0].Service == r.targets[0].Service:
		t.report(diag.Warning, c.Claimant, at, "the canary has the Service of "+main.by.Ref.String()+", and changes nothing", "give it a Service of its own")
		return r, false
	}
	usable := t.canaryOptions(c, main, serviceOf(served[0]), serviceOf(r.targets[0]))
	return r, t.canaryProtocol(c, main, served[0], r.targets[0]) && usable
}

// canaryProtocol reports a canary whose endpoints speak another protocol than
// those of the route, and whether the canary can be used.
func (t *merge) canaryProtocol(c canary, main claim, served, own routing.Target) bool {
	_, asked := main.by.annotations[options.Prefix+"backend-protocol"]
	_, offered := t.services[serviceOf(served)].Value.Annotations[options.Prefix+"backend-protocol"]
	if asked || offered || options.SameProtocol(t.appProtocol(served), t.appProtocol(own)) {
		return true
	}
	service := t.services[serviceOf(own)]
	t.add(diag.Diagnostic{
		Severity: diag.Error, Object: service.Ref, Position: service.Position("spec", "ports"),
		Message: fmt.Sprintf("appProtocol is not that of Service %s, so that %s gets nothing", serviceOf(served), c.Ref),
		Hint:    "give both ports the same appProtocol: a canary's endpoints are spoken to as the others of the route",
	})
	return false
}

// appProtocol returns the appProtocol of a Service's port, or "".
func (t *merge) appProtocol(target routing.Target) string {
	service, exists := t.services[serviceOf(target)]
	if !exists {
		return ""
	}
	for _, port := range service.Value.Spec.Ports {
		if port.Name == target.Service.Port && port.AppProtocol != nil {
			return *port.AppProtocol
		}
	}
	return ""
}

func serviceOf(target routing.Target) snapshots.SecretName {
	return snapshots.SecretName{Namespace: target.Service.Namespace, Name: target.Service.Service}
}

// canaryOptions reports what a canary and its Service ask for beyond what holds
// for the route, and whether the canary can be used all the same.
func (t *merge) canaryOptions(c canary, main claim, served, own snapshots.SecretName) bool {
	usable := true
	of := main.by.Ref.String()
	for _, name := range options.Different(c.annotations, main.by.annotations) {
		severity, message := diag.Warning, "is not used: for a canary those of "+of+" hold"
		if options.Closing(name) {
			severity, message = diag.Error, "cannot protect a canary, which gets nothing: what protects "+of+" holds"
			usable = false
		}
		t.report(severity, c.Claimant, c.Position(annotationPath(name)...), "annotation "+options.Prefix+name+" "+message, "set it there, or remove it here")
	}
	canaryService, mainService := t.services[own], t.services[served]
	_, problems := options.Read(options.OnService, canaryService.Value.Annotations)
	t.add(problemsOf(canaryService.Ref, canaryService.Position, problems)...)
	for _, name := range options.Different(canaryService.Value.Annotations, mainService.Value.Annotations, main.by.annotations) {
		usable = false
		t.add(diag.Diagnostic{
			Severity: diag.Error, Object: canaryService.Ref, Position: canaryService.Position(annotationPath(name)...),
			Message: fmt.Sprintf("annotation %s%s is not that of %s, so that %s gets nothing", options.Prefix, name, mainService.Ref, c.Ref),
			Hint:    "give both Services the same options: a canary's endpoints are chosen and spoken to as the others of the route",
		})
	}
	return usable
}

// sharedRoutes returns the routes that a canary adds before one, and the
// backend that the route then leads to. The header decides first, then the
// cookie, then the weight.
func (t *merge) sharedRoutes(c canary, main claim, target resolved, at routing.Origin) (before []routing.Route, backend string) {
	from := t.backends[main.backend]
	alone := from.Name + "_" + serviceAndPort(target)
	add := func(of routing.Part, name, value, to string) {
		if to == alone {
			t.variant(from, main, alone, target.targets, at)
		}
		before = append(before, routing.Route{
			Match: routing.Match{Conditions: []routing.Condition{{Of: of, Name: name, Value: value}}}, Backend: to, Yields: to == alone, Origin: at,
		})
	}
	if c.Header.Value != "" {
		add(routing.Header, c.Header.Name, c.Header.Value, alone)
	} else if c.Header.Name != "" && c.Header.Pattern != "" {
		add(routing.HeaderPattern, c.Header.Name, c.Header.Pattern, alone)
	} else if c.Header.Name != "" {
		add(routing.Header, c.Header.Name, "always", alone)
		add(routing.Header, c.Header.Name, "never", main.backend)
	}
	if c.Cookie != "" {
		add(routing.Cookie, c.Cookie, "always", alone)
		add(routing.Cookie, c.Cookie, "never", main.backend)
	}
	shares := []routing.Target{from.Targets[0], target.targets[0]}
	if c.Weight == nil || !t.weighable(c, from, shares) {
		return before, main.backend
	}
	shares[0].Weight, shares[1].Weight = 100-*c.Weight, *c.Weight
	split := alone + "." + c.Ref.Name
	t.variant(from, main, split, shares, at)
	t.replaced[main.backend] = true
	return before, split
}

// serviceAndPort ends the name of a backend that has another Service than its
// Ingress says.
func serviceAndPort(r resolved) string {
	return strings.TrimPrefix(r.name, r.targets[0].Service.Namespace+"_")
}

// weighable reports whether a backend can share requests by weight.
func (t *merge) weighable(c canary, b *routing.Backend, shares []routing.Target) bool {
	var message, hint string
	switch {
	case slices.ContainsFunc(shares, func(s routing.Target) bool { return s.Name != nil }):
		message, hint = "a Service of type ExternalName has no endpoints to share with", "use canary-by-header or canary-by-cookie"
	case b.Upstream != nil && (b.Upstream.Balance.By == policy.LeastConn || b.Upstream.Balance.By == policy.First):
		message = fmt.Sprintf("balance %s knows no weights", b.Upstream.Balance.By)
		hint = "use balance random, which prefers endpoints with few connections too, or roundrobin"
	default:
		return true
	}
	t.report(diag.Error, c.Claimant, c.Position(annotationPath("canary-weight")...), "annotation "+options.Prefix+"canary-weight is not used: "+message, hint)
	return false
}

// variant makes a backend that is like another one but for its targets.
func (t *merge) variant(from *routing.Backend, main claim, name string, targets []routing.Target, origin routing.Origin) {
	b := t.backends[name]
	if b == nil {
		made := *from
		made.Name, made.Targets = name, targets
		made.Origins = slices.DeleteFunc(slices.Clone(from.Origins), func(o routing.Origin) bool {
			return o.Object.Kind == main.by.Ref.Kind && o.Object != main.by.Ref
		})
		b = &made
		t.backends[name] = b
	}
	if !slices.ContainsFunc(b.Origins, func(o routing.Origin) bool { return o.Object == origin.Object }) {
		b.Origins = append(b.Origins, origin)
	}
}

// dropReplaced drops the backends that no route leads to any more since canaries
// share them.
func (t *merge) dropReplaced() {
	if len(t.replaced) == 0 {
		return
	}
	for _, h := range t.hosts {
		for _, c := range h.routes {
			delete(t.replaced, c.backend)
			for _, r := range c.before {
				delete(t.replaced, r.Backend)
			}
		}
	}
	if t.fallback != nil {
		delete(t.replaced, t.fallback.backend)
	}
	for name := range t.replaced {
		delete(t.backends, name)
	}
}
