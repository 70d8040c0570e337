package routing

import (
	"fmt"
	"slices"
	"strings"

	networkingv1 "k8s.io/api/networking/v1"

	"github.com/hapsnap/hapsnap/compiler/diag"
	"github.com/hapsnap/hapsnap/compiler/options"
	"github.com/hapsnap/hapsnap/compiler/policy"
	"github.com/hapsnap/hapsnap/internal/printable"
	"github.com/hapsnap/hapsnap/snapshots"
)

// canary is an Ingress that shares the routes of others, and how.
type canary struct {
	ingress
	options.Canary
}

// canary adds a canary to the routes that it shares. All others must have been
// added before. What it sends requests to has the backends' options of those
// who have the routes: it is no way around what protects them.
func (t *translation) canary(ing ingress) {
	values, problems := options.Read(options.OnIngress, ing.Value.Annotations)
	t.reportProblems(ing.Ref, ing.Position, problems)
	if !values.Has("canary") {
		return
	}
	if !t.cfg.IgnoreForeign && t.reportForeign(ing, "the canary gets nothing") {
		return
	}
	settings, _, _ := options.Resolve(values)
	c := canary{ing, settings.Canary}
	if c.Weight == nil && c.Header.Name == "" && c.Cookie == "" {
		t.report(diag.Warning, ing, ing.Position(annotationPath("canary")...), "the canary asks for no requests",
			"set "+options.Prefix+"canary-weight, canary-by-header or canary-by-cookie")
		return
	}
	for i, rule := range ing.Value.Spec.Rules {
		if rule.HTTP == nil {
			continue
		}
		for j, p := range rule.HTTP.Paths {
			t.share(c, rule.Host, p, "spec", "rules", i, "http", "paths", j)
		}
	}
}

// share adds a canary to one route, under all names of its host.
func (t *translation) share(c canary, host string, p networkingv1.HTTPIngressPath, path ...any) {
	match, taken := t.sharedMatch(host, p)
	at := originOf(c.ingress, sub(path, "path")...)
	what := fmt.Sprintf("path %s (%s)%s", printable.Quoted(orSlash(p.Path)), *p.PathType, ofHost(host))
	main := t.claimOf(host, match)
	switch {
	case !taken:
		t.report(diag.Warning, c.ingress, at.Position, what+" is no route that the canary could share; it gets nothing",
			"a canary has the host, path and pathType of another Ingress's route")
		return
	case main.by.Ref.Namespace != c.Ref.Namespace:
		t.report(diag.Error, c.ingress, at.Position, what+" is not shared: it is a route of "+main.by.Ref.String(), "a canary is in the namespace of the Ingress whose routes it shares")
		return
	case main.sharedBy != nil:
		t.reportLost(diag.Error, c.ingress, *main.sharedBy, at.Position, what+" is not shared: it was taken by the canary "+precedes(*main.sharedBy, c.ingress), "remove one of the two")
		return
	}
	target, ok := t.canaryTarget(c, main, p.Backend, sub(path, "backend"))
	if !ok {
		return
	}
	before, backend := t.sharedRoutes(c, main, target, at)
	for _, name := range t.namesOf(main.by, host) {
		routes := t.hosts[hostName(name)].routes
		match, _ := t.sharedMatch(name, p)
		if other, ok := routes[match]; ok && other.by.Ref == main.by.Ref && other.backend == main.backend {
			other.before, other.backend, other.sharedBy = before, backend, &c.ingress
			routes[match] = other
		}
	}
}

// sharedMatch returns the match that a path of a canary shares. One that is
// ImplementationSpecific means what it means to the Ingress that has the route.
func (t *translation) sharedMatch(host string, p networkingv1.HTTPIngressPath) (PathMatch, bool) {
	for _, exact := range []bool{false, true} {
		form := NormalForm
		if h := t.hosts[hostName(host)]; h != nil {
			form = h.form
		}
		match := matchOf(p, exact, form)
		if t.claimOf(host, match).backend != "" {
			return match, true
		}
	}
	match := PathMatch{Expression, p.Path}
	return match, isSpecific(p) && t.claimOf(host, match).backend != ""
}

// claimOf returns who has a route, or the zero claim.
func (t *translation) claimOf(host string, match PathMatch) claim {
	h := t.hosts[hostName(host)]
	if h == nil {
		return claim{}
	}
	return h.routes[match]
}

// namesOf returns a host and the aliases that an Ingress gives it.
func (t *translation) namesOf(ing ingress, host string) []string {
	names := []string{host}
	if slices.Contains(ruleHosts(ing.Value.Spec.Rules), normalHost(host)) {
		names = append(names, t.aliases[ing.Ref]...)
	}
	return names
}

// canaryTarget returns what a canary sends the requests of a route to, unless
// something stands in the way.
func (t *translation) canaryTarget(c canary, main claim, ref networkingv1.IngressBackend, path []any) (resolved, bool) {
	at := c.Position(path...)
	r := t.resolveService(c.ingress, ref)
	if f := r.finding; f.message != "" {
		t.report(f.severity, c.ingress, c.Position(sub(path, f.field...)...), f.message+"; the canary gets nothing", f.hint)
	}
	served := t.backends[main.backend].Targets
	switch {
	case len(r.targets) != 1:
		return r, false
	case len(served) != 1:
		t.report(diag.Warning, c.ingress, at, "the canary gets nothing, since the route of "+main.by.Ref.String()+" is answered 503", "")
		return r, false
	case served[0].Service == r.targets[0].Service:
		t.report(diag.Warning, c.ingress, at, "the canary has the Service of "+main.by.Ref.String()+", and changes nothing", "give it a Service of its own")
		return r, false
	}
	usable := t.canaryOptions(c, main, serviceOf(served[0]), serviceOf(r.targets[0]))
	return r, t.canaryProtocol(c, main, served[0], r.targets[0]) && usable
}

// canaryProtocol reports a canary whose endpoints speak another protocol than
// those of the route, and whether the canary can be used.
func (t *translation) canaryProtocol(c canary, main claim, served, own Target) bool {
	_, asked := main.by.Value.Annotations[options.Prefix+"backend-protocol"]
	_, offered := t.services[serviceOf(served)].Value.Annotations[options.Prefix+"backend-protocol"]
	if asked || offered || options.SameProtocol(t.appProtocol(served), t.appProtocol(own)) {
		return true
	}
	service := t.services[serviceOf(own)]
	t.found = append(t.found, diag.Diagnostic{
		Severity: diag.Error, Object: service.Ref, Position: service.Position("spec", "ports"),
		Message: fmt.Sprintf("appProtocol is not that of Service %s, so that %s gets nothing", serviceOf(served), c.Ref),
		Hint:    "give both ports the same appProtocol: a canary's endpoints are spoken to as the others of the route",
	})
	return false
}

// appProtocol returns the appProtocol of a Service's port, or "".
func (t *translation) appProtocol(target Target) string {
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

func serviceOf(target Target) snapshots.SecretName {
	return snapshots.SecretName{Namespace: target.Service.Namespace, Name: target.Service.Service}
}

// canaryOptions reports what a canary and its Service ask for beyond what holds
// for the route, and whether the canary can be used all the same.
func (t *translation) canaryOptions(c canary, main claim, served, own snapshots.SecretName) bool {
	usable := true
	of := main.by.Ref.String()
	for _, name := range options.Different(c.Value.Annotations, main.by.Value.Annotations) {
		severity, message := diag.Warning, "is not used: for a canary those of "+of+" hold"
		if options.Closing(name) {
			severity, message = diag.Error, "cannot protect a canary, which gets nothing: what protects "+of+" holds"
			usable = false
		}
		t.report(severity, c.ingress, c.Position(annotationPath(name)...), "annotation "+options.Prefix+name+" "+message, "set it there, or remove it here")
	}
	canaryService, mainService := t.services[own], t.services[served]
	t.serviceOptions(canaryService)
	for _, name := range options.Different(canaryService.Value.Annotations, mainService.Value.Annotations, main.by.Value.Annotations) {
		usable = false
		t.found = append(t.found, diag.Diagnostic{
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
func (t *translation) sharedRoutes(c canary, main claim, target resolved, at Origin) (before []Route, backend string) {
	from := t.backends[main.backend]
	alone := from.Name + "_" + serviceAndPort(target)
	add := func(of Part, name, value, to string) {
		if to == alone {
			t.variant(from, main, alone, target.targets, at)
		}
		before = append(before, Route{
			Match: Match{Conditions: []Condition{{of, name, value}}}, Backend: to, Yields: to == alone, Origin: at,
		})
	}
	if c.Header.Value != "" {
		add(Header, c.Header.Name, c.Header.Value, alone)
	} else if c.Header.Name != "" && c.Header.Pattern != "" {
		add(HeaderPattern, c.Header.Name, c.Header.Pattern, alone)
	} else if c.Header.Name != "" {
		add(Header, c.Header.Name, "always", alone)
		add(Header, c.Header.Name, "never", main.backend)
	}
	if c.Cookie != "" {
		add(Cookie, c.Cookie, "always", alone)
		add(Cookie, c.Cookie, "never", main.backend)
	}
	shares := []Target{from.Targets[0], target.targets[0]}
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
func (t *translation) weighable(c canary, b *Backend, shares []Target) bool {
	var message, hint string
	switch {
	case slices.ContainsFunc(shares, func(s Target) bool { return s.Name != nil }):
		message, hint = "a Service of type ExternalName has no endpoints to share with", "use canary-by-header or canary-by-cookie"
	case b.Upstream != nil && (b.Upstream.Balance.By == policy.LeastConn || b.Upstream.Balance.By == policy.First):
		message = fmt.Sprintf("balance %s knows no weights", b.Upstream.Balance.By)
		hint = "use balance random, which prefers endpoints with few connections too, or roundrobin"
	default:
		return true
	}
	t.report(diag.Error, c.ingress, c.Position(annotationPath("canary-weight")...), "annotation "+options.Prefix+"canary-weight is not used: "+message, hint)
	return false
}

// variant makes a backend that is like another one but for its targets.
func (t *translation) variant(from *Backend, main claim, name string, targets []Target, origin Origin) {
	b := t.backends[name]
	if b == nil {
		made := *from
		made.Name, made.Targets = name, targets
		made.Origins = slices.DeleteFunc(slices.Clone(from.Origins), func(o Origin) bool {
			return o.Object.Kind == main.by.Ref.Kind && o.Object != main.by.Ref
		})
		b = &made
		t.backends[name] = b
	}
	if !slices.ContainsFunc(b.Origins, func(o Origin) bool { return o.Object == origin.Object }) {
		b.Origins = append(b.Origins, origin)
	}
}

// dropReplaced drops the backends that no route leads to any more since canaries
// share them.
func (t *translation) dropReplaced() {
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
