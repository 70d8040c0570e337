package ingress

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/types"

	"github.com/hapsnap/hapsnap/compiler/access"
	"github.com/hapsnap/hapsnap/compiler/diag"
	"github.com/hapsnap/hapsnap/compiler/options"
	"github.com/hapsnap/hapsnap/compiler/policy"
	"github.com/hapsnap/hapsnap/compiler/routing"
	"github.com/hapsnap/hapsnap/compiler/routing/hostname"
	"github.com/hapsnap/hapsnap/internal/haproxycfg"
	"github.com/hapsnap/hapsnap/internal/printable"
)

// backends are the backends of requests, by name, with what their options name.
type backends struct {
	*findings
	certs    *certificates
	access   *access.Taker
	byName   map[string]*routing.Backend
	replaced map[string]bool // no route of the Ingress leads there, because a canary shares its requests
	closed   map[string]bool // something that protects the backend is missing or cannot be used
}

// take returns the name of the backend to which the merged Ingress sends requests. It makes the backend if it is new.
// It reports the problem of a backend once for each Ingress.
func (t *backends) take(d demand, m *merging) string {
	name := m.nameOf(d)
	b := t.byName[name]
	if b == nil {
		b = &routing.Backend{Name: name}
		t.byName[name] = b
		if !m.closed {
			b.Targets = d.targets
			t.applyOptions(b, d.options, m)
		}
	}
	// All claims of one Ingress are merged before those of the next one, so this Ingress would be the last.
	if n := len(b.Origins); n > 0 && b.Origins[n-1].Object == m.Ref {
		return name
	}
	if len(b.Origins) == 0 {
		b.Origins = slices.Clip(d.origins) // what is appended is not in the claims
	} else {
		b.Origins = append(b.Origins, d.origins...)
	}
	if d.problem != nil && !m.closed {
		problem := *d.problem
		problem.Message += "; requests for it are answered 503"
		t.add(problem)
	}
	return name
}

// applyOptions gives a new backend what its Ingress and its Service ask for. If something that protects the backend is
// missing or wrong, the backend gets no targets, so it answers 503.
func (t *backends) applyOptions(b *routing.Backend, o *backendOptions, m *merging) {
	t.add(o.found...)
	if o.plain {
		return
	}
	b.Origins = append(b.Origins, o.origins...)
	usable := !o.closed && !m.refused && t.access.Lists(o.lists) && t.authenticate(o, m)
	if usable && o.refused != nil {
		t.add(*o.refused)
		usable = false
	}
	filters := o.filters
	if usable {
		filters, usable = t.access.Policy(o.policy, filters)
	}
	if !usable {
		b.Targets = nil
		t.closed[b.Name] = true
		return
	}
	b.Filters, b.Protection, b.Upstream, b.Snippet = filters, o.protects, o.upstream, o.snippet
	t.certs.takeForServers(o.secrets)
}

// authenticate adds the list of users and the authentication service that the options name. It returns false if the
// service cannot be used.
func (t *backends) authenticate(o *backendOptions, m *merging) bool {
	if o.users != nil {
		t.access.Users(*o.users)
	}
	if o.auth == nil {
		return true
	}
	t.add(o.auth.Found...)
	if o.auth.Refused != nil {
		t.add(*o.auth.Refused)
		return false
	}
	b := t.byName[o.auth.Backend.Name]
	if b == nil {
		made := o.auth.Backend
		b = &made
		t.byName[b.Name] = b
	}
	if n := len(b.Origins); n == 0 || b.Origins[n-1].Object != m.Ref {
		b.Origins = append(b.Origins, o.auth.Origin)
	}
	return true
}

// protecting reports whether a backend refuses requests that another backend might serve. It may refuse them because of
// who sent them, because there are too many, or it may refuse all. A limit on the size of bodies does not count, and
// neither do changes to answers. closed says that the Ingress answers 503 everywhere.
func (t *backends) protecting(backend string, closed bool) bool {
	b := t.byName[backend]
	if backend == routing.Unavailable {
		return closed
	}
	p := policy.Protection{}
	if b.Protection != nil {
		p = *b.Protection
	}
	p.MaxBody = 0
	return t.closed[backend] || p.Any() || slices.ContainsFunc(b.Snippet, refuses) || slices.ContainsFunc(b.Filters, func(f policy.Filter) bool {
		switch f.(type) {
		case policy.BasicAuth, policy.ExternalAuth, policy.Agent, policy.WAF:
			return true
		}
		return false
	})
}

// refuses reports whether a line of a snippet may refuse requests.
func refuses(line routing.SnippetLine) bool {
	words := haproxycfg.Line{Text: []byte(line.Text())}.Texts()
	return len(words) > 1 && slices.Contains([]string{"deny", "tarpit", "reject", "silent-drop", "auth", "return", "redirect"}, words[1]) ||
		len(words) > 2 && words[2] == "reject"
}

// variant makes a copy of a backend with other targets.
func (t *backends) variant(from *routing.Backend, main claim, name string, targets []routing.Target, origin routing.Origin) {
	b := t.byName[name]
	if b == nil {
		made := *from
		made.Name, made.Targets = name, targets
		made.Origins = slices.DeleteFunc(slices.Clone(from.Origins), func(o routing.Origin) bool {
			return o.Object.Kind == main.by.Ref.Kind && o.Object != main.by.Ref
		})
		b = &made
		t.byName[name] = b
	}
	if !slices.ContainsFunc(b.Origins, func(o routing.Origin) bool { return o.Object == origin.Object }) {
		b.Origins = append(b.Origins, origin)
	}
}

// dropReplaced removes the backends to which no route leads any more because canaries share their requests.
func (t *backends) dropReplaced(hosts *hosts) {
	if len(t.replaced) == 0 {
		return
	}
	for _, h := range hosts.byName {
		for _, c := range h.routes {
			delete(t.replaced, c.backend)
			for _, r := range c.before {
				delete(t.replaced, r.Backend)
			}
		}
	}
	if hosts.defaultBackend != nil {
		delete(t.replaced, hosts.defaultBackend.backend)
	}
	for name := range t.replaced {
		delete(t.byName, name)
	}
}

// modelBackends returns backends in the form of the model.
func modelBackends(backends map[string]*routing.Backend) []routing.Backend {
	out := slices.Grow([]routing.Backend(nil), len(backends))
	for _, name := range slices.Sorted(maps.Keys(backends)) {
		b := *backends[name]
		slices.SortFunc(b.Origins, routing.Origin.Compare)
		slices.Sort(b.Prefixes)
		b.Prefixes = slices.Compact(b.Prefixes)
		b.Expressions = routing.SortExpressions(b.Expressions)
		out = append(out, b)
	}
	return out
}

// canaries adds canaries to the routes that they share.
type canaries struct {
	*findings
	resolver resolver
	hosts    *hosts
	backends *backends
	aliases  map[diag.Object][]string         // the aliases of Ingresses
	parts    map[string]map[decidingPart]bool // by namespace, what its canaries decide by

	ignoreForeign bool
}

// mostCanaryParts is the largest number of names of headers and cookies, and of expressions, by which the canaries of a
// namespace may decide. HAProxy has a rule for each. Every request to a route with a canary takes time for all of these
// rules, whoever owns the canary. Values of a header take none.
const mostCanaryParts = 64

// decidingPart is a part of requests for which HAProxy has one rule. pattern is "" if whole values are compared.
type decidingPart struct {
	of            routing.Part
	name, pattern string
}

// decidingParts returns the parts by which a canary decides.
func decidingParts(c options.Canary) []decidingPart {
	var out []decidingPart
	switch {
	case c.Header.Name == "":
	case c.Header.Value == "" && c.Header.Pattern != "":
		out = append(out, decidingPart{routing.HeaderPattern, c.Header.Name, c.Header.Pattern})
	default:
		out = append(out, decidingPart{of: routing.Header, name: strings.ToLower(c.Header.Name)})
	}
	if c.Cookie != "" {
		out = append(out, decidingPart{of: routing.Cookie, name: c.Cookie})
	}
	return out
}

// canary is an Ingress that shares the routes of others, and how.
type canary struct {
	*claims
	options.Canary
}

// canary adds a canary to the routes that it shares. All Ingresses that are not canaries must have been added before.
// Requests to the canary are treated with the backend options of the Ingresses that have the routes, so nobody can use
// a canary to evade what protects them.
func (t *canaries) canary(c *claims) {
	t.add(c.found...)
	if c.canary == nil {
		return
	}
	namespace := c.Ref.Namespace
	known := t.parts[namespace]
	if known == nil {
		known = map[decidingPart]bool{}
		t.parts[namespace] = known
	}
	parts := slices.DeleteFunc(decidingParts(*c.canary), func(p decidingPart) bool { return known[p] })
	if len(known)+len(parts) > mostCanaryParts {
		t.report(diag.Error, c.Claimant, c.Position(annotationPath("canary")...),
			fmt.Sprintf("the canaries of namespace %s decide by more than %d names of headers and cookies, and expressions; this one gets nothing", namespace, mostCanaryParts),
			"use a header of another canary with a value of its own (canary-by-header: NAME VALUE), which costs nothing; the oldest canaries of a namespace are kept")
		return
	}
	shared := false
	for _, r := range c.rules {
		for _, p := range r.paths {
			shared = t.share(canary{c, *c.canary}, r.host, p) || shared
		}
	}
	for _, p := range parts {
		if shared {
			known[p] = true
		}
	}
}

// share adds a canary to one route, under all names of its host. It returns false if that is not possible.
func (t *canaries) share(c canary, host string, p path) bool {
	match, taken := t.sharedMatch(host, p)
	at := p.origin
	what := fmt.Sprintf("path %s (%s)%s", printable.Quoted(orSlash(p.text)), p.kind, ofHost(host))
	main := t.hosts.claimOf(host, match)
	switch {
	case !taken:
		t.report(diag.Warning, c.Claimant, at.Position, what+" is no route that the canary could share; it gets nothing",
			"a canary has the host, path and pathType of another Ingress's route")
		return false
	case main.by.Ref.Namespace != c.Ref.Namespace:
		t.report(diag.Error, c.Claimant, at.Position, what+" is not shared: it is a route of "+main.by.Ref.String(), "a canary is in the namespace of the Ingress whose routes it shares")
		return false
	case main.sharedBy != nil:
		t.reportLost(diag.Error, c.Claimant, main.sharedBy.Claimant, at.Position, what+" is not shared: it was taken by the canary "+main.sharedBy.Precedes(c.Claimant), "remove one of the two")
		return false
	}
	target, ok := t.canaryTarget(c, main, p.backend)
	if !ok {
		return false
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
	return true
}

// sharedMatch returns the match of the route that a path of a canary shares. An ImplementationSpecific path has the
// meaning that it has for the Ingress with the route.
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

// canaryTarget returns the target of a canary for the requests of a route, unless an error prevents it.
func (t *canaries) canaryTarget(c canary, main claim, d demand) (resolved, bool) {
	at, r := d.origins[0].Position, d.resolved
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

// canaryProtocol reports a canary whose endpoints speak another protocol than those of the route. It returns false if
// the canary cannot be used.
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

// canaryOptions reports options of a canary and its Service that the Ingress with the route does not have. It returns
// false if the canary cannot be used.
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
	t.add(options.Diagnostics(canaryService.Ref, canaryService.Position, problems)...)
	for _, name := range options.Different(canaryService.Value.Annotations, mainService.Value.Annotations, main.by.annotations) {
		usable = false
		t.add(diag.Diagnostic{
			Severity: diag.Error, Object: canaryService.Ref, Position: canaryService.Position(annotationPath(name)...),
			Message: fmt.Sprintf("annotation %s%s is not that of %s, so that %s gets nothing", options.Prefix, name, mainService.Ref, c.Ref),
			Hint:    "give both Services the same options: a canary's endpoints are chosen and spoken to as the others of the route",
		})
	}
	if t.ignoreForeign {
		return usable
	}
	asked := maps.Clone(main.by.annotations)
	if asked == nil {
		asked = map[string]string{}
	}
	maps.Copy(asked, mainService.Value.Annotations)
	foreign := foreignOfService(canaryService, asked, c.Ref.String()+" gets nothing")
	t.add(foreign...)
	return usable && len(foreign) == 0
}

// sharedRoutes returns the routes that a canary adds before a route, and the backend to which that route then leads.
// The header decides first, then the cookie, then the weight.
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

// serviceAndPort returns the end of the name of a backend with another Service than its Ingress names.
func serviceAndPort(r resolved) string {
	return strings.TrimPrefix(r.name, r.targets[0].Service.Namespace+"_")
}

// weighable reports whether a backend can share its requests by weight.
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
