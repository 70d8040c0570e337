package ingress

import (
	"fmt"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/types"

	"github.com/hapsnap/hapsnap/compiler/diag"
	"github.com/hapsnap/hapsnap/compiler/options"
	"github.com/hapsnap/hapsnap/compiler/policy"
	"github.com/hapsnap/hapsnap/compiler/routing"
	"github.com/hapsnap/hapsnap/compiler/routing/hostname"
	"github.com/hapsnap/hapsnap/internal/printable"
)

// canaries adds canaries to the routes that they share.
type canaries struct {
	*findings
	resolver resolver
	hosts    *hosts
	backends *backends
	aliases  map[diag.Object][]string // of Ingresses
}

// canary is an Ingress that shares the routes of others, and how.
type canary struct {
	*claims
	options.Canary
}

// canary adds a canary to the routes that it shares. All others must have been
// added before. What it sends requests to has the backends' options of those
// who have the routes: it is no way around what protects them.
func (t *canaries) canary(c *claims) {
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
func (t *canaries) share(c canary, host string, p path) {
	match, taken := t.sharedMatch(host, p)
	at := p.origin
	what := fmt.Sprintf("path %s (%s)%s", printable.Quoted(orSlash(p.text)), p.kind, ofHost(host))
	main := t.hosts.claimOf(host, match)
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
	names := []string{host}
	if slices.Contains(main.by.ruleHosts, hostname.Normal(host)) {
		names = append(names, t.aliases[main.by.Ref]...)
	}
	for _, name := range names {
		routes := t.hosts.byName[hostname.Of(name)].routes
		match, _ := t.sharedMatch(name, p)
		if other, ok := routes[match]; ok && other.by.Ref == main.by.Ref && other.backend == main.backend {
			other.before, other.backend, other.sharedBy = before, backend, c.claims
			routes[match] = other
		}
	}
}

// sharedMatch returns the match that a path of a canary shares. One that is
// ImplementationSpecific means what it means to the Ingress that has the route.
func (t *canaries) sharedMatch(host string, p path) (routing.PathMatch, bool) {
	for _, exact := range []bool{false, true} {
		form := routing.NormalForm
		if h := t.hosts.byName[hostname.Of(host)]; h != nil {
			form = h.form
		}
		match := p.matchIn(exact, form)
		if t.hosts.claimOf(host, match).backend != "" {
			return match, true
		}
	}
	match := routing.PathMatch{Type: routing.Expression, Path: p.text}
	return match, p.isSpecific() && t.hosts.claimOf(host, match).backend != ""
}

// canaryTarget returns what a canary sends the requests of a route to, unless
// something stands in the way.
func (t *canaries) canaryTarget(c canary, main claim, d demand) (resolved, bool) {
	at, r := d.origin.Position, d.resolved
	if d.problem != nil {
		problem := *d.problem
		problem.Message += "; the canary gets nothing"
		t.add(problem)
	}
	served := t.backends.byName[main.backend].Targets
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
func (t *canaries) canaryProtocol(c canary, main claim, served, own routing.Target) bool {
	_, asked := main.by.annotations[options.Prefix+"backend-protocol"]
	mainService, _ := t.resolver.service(serviceOf(served))
	_, offered := mainService.Value.Annotations[options.Prefix+"backend-protocol"]
	if asked || offered || options.SameProtocol(t.resolver.appProtocol(served), t.resolver.appProtocol(own)) {
		return true
	}
	service, _ := t.resolver.service(serviceOf(own))
	t.add(diag.Diagnostic{
		Severity: diag.Error, Object: service.Ref, Position: service.Position("spec", "ports"),
		Message: fmt.Sprintf("appProtocol is not that of Service %s, so that %s gets nothing", serviceOf(served), c.Ref),
		Hint:    "give both ports the same appProtocol: a canary's endpoints are spoken to as the others of the route",
	})
	return false
}

func serviceOf(target routing.Target) types.NamespacedName {
	return types.NamespacedName{Namespace: target.Service.Namespace, Name: target.Service.Service}
}

// canaryOptions reports what a canary and its Service ask for beyond what holds
// for the route, and whether the canary can be used all the same.
func (t *canaries) canaryOptions(c canary, main claim, served, own types.NamespacedName) bool {
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
	canaryService, _ := t.resolver.service(own)
	mainService, _ := t.resolver.service(served)
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
func (t *canaries) sharedRoutes(c canary, main claim, target resolved, at routing.Origin) (before []routing.Route, backend string) {
	from := t.backends.byName[main.backend]
	alone := from.Name + "_" + serviceAndPort(target)
	add := func(of routing.Part, name, value, to string) {
		if to == alone {
			t.backends.variant(from, main, alone, target.targets, at)
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
	t.backends.variant(from, main, split, shares, at)
	t.backends.replaced[main.backend] = true
	return before, split
}

// serviceAndPort ends the name of a backend that has another Service than its
// Ingress says.
func serviceAndPort(r resolved) string {
	return strings.TrimPrefix(r.name, r.targets[0].Service.Namespace+"_")
}

// weighable reports whether a backend can share requests by weight.
func (t *canaries) weighable(c canary, b *routing.Backend, shares []routing.Target) bool {
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
