package ingress

import (
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/hapsnap/hapsnap/compiler/config"
	"github.com/hapsnap/hapsnap/compiler/diag"
	"github.com/hapsnap/hapsnap/compiler/options"
	"github.com/hapsnap/hapsnap/compiler/policy"
	"github.com/hapsnap/hapsnap/compiler/routing"
	"github.com/hapsnap/hapsnap/compiler/routing/hostname"
	"github.com/hapsnap/hapsnap/compiler/routing/ownership"
	"github.com/hapsnap/hapsnap/internal/printable"
)

// The largest number of expressions of a host and of a namespace, and of steps that the expressions of a host may take
// together for one path.
const (
	mostExpressionsOfHost      = 64
	mostExpressionsOfNamespace = 512
	mostExpressionSteps        = 250_000
)

// merge adds what one valid Ingress asks for, except what an older one already has. It leaves out paths that cannot be
// matched.
func (t *merge) merge(c *claims, protects bool) {
	t.begin(c, protects)
	t.add(c.foreign...)
	t.merging.closed = c.closed
	t.merging.refused = t.names.askClients(c, t.merging.aliases)
	t.mergeDefault()
	t.mergeRules()
	t.mergeTLS()
	// The same names with www. before them, or without it, redirect to the hosts of the Ingress. If any Ingress names
	// such a host in a rule, or as an alias, that Ingress keeps the host, however young it is. A host that is served is
	// not redirected.
	if !t.merging.redirectWWW || t.merging.closed {
		return
	}
	by := t.merging.claims
	at := by.Origin(annotationPath("redirect-www")...)
	for _, host := range by.ruleHosts {
		host = hostname.Normal(host)
		from := otherName(host)
		if message, _ := hostname.Check(from); strings.HasPrefix(host, "*.") || message != "" || t.hosts.routed[from] || t.hosts.byName[from] != nil {
			continue
		}
		if !t.hosts.mayDecide(by.Claimant, at.Position, "annotation redirect-www", host) || !t.hosts.mayDecide(by.Claimant, at.Position, "annotation redirect-www", from) {
			continue
		}
		// Names of Services contain no underscore, so no other backend has this name.
		backend := "hapsnap_www_" + host
		t.backends.byName[backend] = &routing.Backend{Name: backend, Filters: []policy.Filter{policy.HostRedirect{Host: host, Code: 308}}, Origins: []routing.Origin{at}}
		h := &virtualHost{origin: at, form: t.formOf(from), routes: map[routing.PathMatch]claim{}}
		h.routes[routing.PathMatch{Type: routing.Prefix}] = claim{by: by, backend: backend, origin: at}
		t.hosts.byName[from] = h
	}
}

// begin begins to merge the claims of an Ingress. It also finds out which aliases the Ingress may have.
func (t *merge) begin(c *claims, protects bool) {
	t.merging = merging{claims: c, protects: protects, exactPaths: c.exactPaths, expressions: c.expressions}
	t.add(c.found...)
	if len(c.aliases) == 0 {
		return
	}
	for _, alias := range c.aliases {
		if t.hosts.mayDecide(c.Claimant, c.Position(annotationPath("server-alias")...), "the alias", alias) {
			t.merging.aliases = append(t.merging.aliases, alias)
		}
	}
	t.aliases[c.Ref] = t.merging.aliases
}

func (t *merge) mergeRules() {
	for _, r := range t.merging.rules {
		t.rule(r)
	}
}

func (t *merge) mergeTLS() {
	c := t.merging.claims
	for _, entry := range c.tls {
		t.add(entry.found...)
		for _, h := range entry.hosts {
			if t.hosts.mayDecide(c.Claimant, h.origin.Position, "Secret "+entry.secret.String(), h.host) {
				t.names.take(c.Claimant, entry, h.host, h.origin)
			}
		}
	}
}

// mergeDefault takes the default backend of the Ingress, unless an older Ingress has one. All Ingresses together have
// only one.
func (t *merge) mergeDefault() {
	by, f := t.merging.claims, t.merging.defaultBackend
	if f == nil {
		return
	}
	defer t.closeBarred("", f.origin.Position)()
	switch {
	case t.hosts.defaultBackend == nil:
		t.hosts.defaultBackend = &claim{by: by, backend: t.backends.take(f.backend, &t.merging), origin: f.origin}
		t.hosts.defaultBackend.guard = t.guardFor(t.hosts.defaultBackend.backend, routing.FormOf(t.cfg.Paths), false)
	case t.hosts.defaultBackend.backend != t.merging.nameOf(f.backend):
		t.reportLost(diag.Error, by.Claimant, t.hosts.defaultBackend.by.Claimant, f.origin.Position,
			"defaultBackend is not used: it was taken by "+t.hosts.defaultBackend.by.Precedes(by.Claimant),
			"there is one for all Ingresses; use a rule with a host and path / instead"+winnerAt(t.hosts.defaultBackend.origin))
	}
}

// rule adds the routes of one rule, for its host and for the aliases of the Ingress. A host without paths is in the
// model too. Its requests get the default backend, and do not match rules of other Ingresses.
func (t *merge) rule(r rule) {
	t.ruleOf(r)
	if r.host == "" {
		return
	}
	for _, alias := range t.merging.aliases {
		if alias != hostname.Normal(r.host) {
			of := r
			of.host, of.key, of.origin = alias, hostname.Of(alias), t.merging.Origin(annotationPath("server-alias")...)
			t.ruleOf(of)
		}
	}
}

// ruleOf adds the routes of a rule for one host.
func (t *merge) ruleOf(r rule) {
	by := t.merging.claims
	standing, owner := t.hosts.owners.StandingOf(by.Ref.Namespace, r.key)
	if standing == ownership.Strange {
		t.hosts.reportStrange(by.Claimant, r.origin.Position, "the rule", r.host, owner)
		return
	}
	defer t.closeBarred(r.key, r.origin.Position)()
	host := t.hosts.byName[r.key]
	if host == nil {
		host = &virtualHost{origin: r.origin, form: t.formOf(r.key), routes: map[routing.PathMatch]claim{}}
		t.hosts.byName[r.key] = host
	}
	servesAll := t.merging.clients.Authority == "" && !t.merging.closed && !t.merging.values.Closed // clients without a certificate too
	host.open = host.open || standing == ownership.Owns && servesAll
	// Another Ingress may decide how the paths of the host are compared.
	rules, holds := t.merging.pathRules, host.form
	if rules.said && rules.form != holds {
		option := "path-parameters"
		if t.merging.paths.Normalize != nil && (rules.form == routing.AsSent || holds == routing.AsSent) {
			option = "normalize-paths"
		}
		t.report(diag.Warning, t.merging.Claimant, t.merging.Position(annotationPath(option)...),
			"annotation "+options.Prefix+option+" is not used for the paths"+ofHost(r.host)+": "+host.origin.Object.String()+" has the host, and says how they are compared",
			"say it there")
	}
	if rules.unsafe == config.RejectUnsafe && t.merging.protects && !t.merging.closed && t.merging.spelledFor(host) {
		t.report(diag.Warning, t.merging.Claimant, r.origin.Position,
			"requests"+ofHost(r.host)+" for Services of namespace "+by.Ref.Namespace+" get 400 if their path is not in its normal form: "+host.origin.Object.String()+" has the host, and its paths are compared as they come",
			"have "+options.Prefix+"normalize-paths removed there, or use a host of your own")
	}
	t.connections.take(by.Claimant, r, t.merging.passthrough && !t.merging.closed)
	for _, p := range r.paths {
		if _, left := by.unusable[p.at]; !left {
			t.route(r, p)
		} else if t.merging.protects {
			t.denyPath(r, p)
		} else if standing == ownership.Owns {
			host.held = true
		}
	}
}

// denyPath makes requests answer 503 that may have been meant for an unusable path of an Ingress that protects
// something. They would otherwise match a shorter path of another Ingress.
func (t *merge) denyPath(r rule, p path) {
	if t.merging.expressions && p.isSpecific() {
		t.denyExpression(r, p)
		return
	}
	if p = p.as(routing.AsRequested(p.text)); len(p.text) > routing.MaxPath {
		return // no request has such a path
	}
	was := t.merging.closed
	t.merging.closed = true
	t.route(r, p)
	t.merging.closed = was
}

// as returns the path with another text.
func (p path) as(text string) path {
	p.text, p.match = text, routing.PathMatch{}
	return p
}

// matchOf returns what a path of the merged Ingress matches, if paths are compared in this form.
func (t *merge) matchOf(p path, form routing.PathForm) routing.PathMatch {
	if p.match.Type != "" && form == t.merging.pathRules.form && t.merging.exactPaths == t.merging.claims.exactPaths {
		return p.match // nearly always
	}
	return p.matchIn(t.merging.exactPaths, form)
}

// route adds one route, unless its match is taken.
func (t *merge) route(r rule, p path) {
	host, by := t.hosts.byName[r.key], t.merging.claims
	match := t.matchOf(p, host.form)
	if t.merging.expressions && p.isSpecific() {
		var usable bool
		if match, usable = t.expression(r, host, p); !usable {
			if t.merging.protects {
				t.denyPath(r, p)
			}
			return
		}
	}
	winner, taken := host.routes[match]
	if !taken {
		backend := t.backends.take(p.backend, &t.merging)
		c := claim{by: by, backend: backend, origin: p.origin, guard: t.guardFor(backend, host.form, t.merging.spelledFor(host))}
		c.fallback = t.fallbackOf(c)
		host.routes[match] = c
		return
	}
	what := fmt.Sprintf("path %s (%s)%s", printable.Quoted(orSlash(p.text)), match.Type, ofHost(r.host))
	if same := orSlash(match.Path); same != orSlash(strings.TrimSuffix(p.text, "/")) && same != p.text {
		what += fmt.Sprintf(", which is compared as %s,", printable.Quoted(same))
	}
	hint := "remove one of the two" + winnerAt(winner.origin)
	if winner.backend == t.merging.nameOf(p.backend) {
		t.reportLost(diag.Warning, by.Claimant, winner.by.Claimant, p.origin.Position, what+" is sent to the same backend by "+winner.by.Precedes(by.Claimant), hint)
		return
	}
	t.reportLost(diag.Error, by.Claimant, winner.by.Claimant, p.origin.Position, what+" is not used: it was taken by "+winner.by.Precedes(by.Claimant), hint)
}

// modelRoutes returns the routes of a claim in the order in which HAProxy tries them. If there is a fallback, requests
// go on to the next route while the others have no usable server.
func (c claim) modelRoutes() []routing.Route {
	out := append(slices.Clone(c.before), routing.Route{Backend: c.backend, Protects: c.guard.unsafe, Origin: c.origin})
	if c.fallback == "" {
		return out
	}
	for i := range out {
		out[i].Yields = true
	}
	return append(out, routing.Route{Backend: c.fallback, Protects: c.guard.unsafe, Origin: c.origin})
}

// fallbackOf returns the backend with the options of a route's backend and the endpoints of the fallback Service. It
// returns "" if the Ingress has no fallback Service. It also returns "" if the route answers 503 whatever endpoints
// there are, since a closed route stays closed.
func (t *merge) fallbackOf(c claim) string {
	by, ref := t.merging.claims, t.merging.fallback
	if ref.Name == "" || t.merging.closed || t.backends.closed[c.backend] || c.backend == routing.Unavailable {
		return ""
	}
	const option = "fallback-service"
	at := by.Origin(annotationPath(option)...)
	refuse := func(message, hint string) string {
		t.report(diag.Warning, by.Claimant, at.Position, "annotation "+options.Prefix+option+": "+message+"; without it, requests are answered 503", hint)
		return ""
	}
	name := types.NamespacedName{Namespace: by.Ref.Namespace, Name: ref.Name}
	service, exists := t.resolver.service(name)
	switch {
	case !exists:
		return refuse(fmt.Sprintf("Service %s does not exist", name), "create it, or correct the name")
	}
	from := t.backends.byName[c.backend]
	var served corev1.Service
	if len(from.Targets) > 0 {
		main, _ := t.resolver.service(serviceOf(from.Targets[0]))
		served = *main.Value
	}
	if own := options.Different(service.Value.Annotations, served.Annotations, by.annotations); len(own) > 0 {
		return refuse(fmt.Sprintf("Service %s has %s%s, which does not hold for the route", name, options.Prefix, own[0]), "its endpoints are asked as those of the route are: set it on the Ingress")
	}
	port := networkingv1.ServiceBackendPort{Number: int32(ref.Port)}
	if ref.Port == 0 {
		port.Number = firstPort(service.Value)
	}
	r := t.resolver.port(service.Value, name, port, fmt.Sprint(port.Number))
	switch {
	case len(r.targets) == 0:
		return refuse(r.finding.message, r.finding.hint)
	case len(from.Targets) > 0 && from.Targets[0].Service == r.targets[0].Service:
		return refuse(fmt.Sprintf("Service %s is that of the route", name), "name another one")
	case len(from.Targets) > 0 && by.annotations[options.Prefix+"backend-protocol"] == "" && !options.SameProtocol(t.resolver.appProtocol(from.Targets[0]), t.resolver.appProtocol(r.targets[0])):
		return refuse(fmt.Sprintf("Service %s has another appProtocol than that of the route", name), "give both ports the same, or set "+options.Prefix+"backend-protocol")
	}
	backend := from.Name + "_" + serviceAndPort(r)
	t.backends.variant(from, c, backend, r.targets, at)
	return backend
}

// otherName returns a host with www. before it, or without it.
func otherName(host string) string {
	if rest, ok := strings.CutPrefix(host, "www."); ok {
		return rest
	}
	return "www." + host
}

// expression returns the match of a path that is a regular expression. It returns false if there are too many
// expressions. The path is then left out, or closed if the Ingress protects something.
func (t *merge) expression(r rule, host *virtualHost, p path) (routing.PathMatch, bool) {
	match := routing.PathMatch{Type: routing.Expression, Path: p.text}
	if _, taken := host.routes[match]; taken {
		return match, true
	}
	problem, hint := "", "use pathType Prefix or Exact where they do"
	never := ""
	if host.form != routing.AsSent {
		never = routing.Unmatchable(p.text)
	}
	switch {
	case never != "":
		problem = fmt.Sprintf("is an expression with %s, which no path contains in the form that is compared", never)
		hint = "letters, digits and the like stand as they are, all others percent-encoded with capital digits, slashes are single, and there are no dot segments"
	case t.expressions[t.merging.Ref.Namespace] >= mostExpressionsOfNamespace:
		problem = fmt.Sprintf("is one expression more than the %d of a namespace", mostExpressionsOfNamespace)
	case len(host.expressions) >= mostExpressionsOfHost:
		problem = fmt.Sprintf("is one expression more than the %d of a host", mostExpressionsOfHost)
	case routing.ExpressionSteps(append(slices.Clip(host.expressions), p.text)) > mostExpressionSteps:
		problem = fmt.Sprintf("is an expression with which those of the host may take more than %d steps on one path", mostExpressionSteps)
	}
	if problem == "" {
		host.expressions = append(host.expressions, p.text)
		t.expressions[t.merging.Ref.Namespace]++
		return match, true
	}
	t.report(diag.Error, t.merging.Claimant, p.origin.Position, fmt.Sprintf("path %s%s %s; it is not used", printable.Quoted(p.text), ofHost(r.host), problem), hint)
	return match, false
}

// denyExpression makes requests answer 503 that may have been meant for an expression, unless another path of the host
// takes them.
func (t *merge) denyExpression(r rule, p path) {
	was, host := t.merging, t.hosts.byName[r.key]
	t.merging.closed, t.merging.expressions, t.merging.exactPaths = true, false, false
	for _, text := range routing.ClosedPrefixes(p.text) {
		p = p.as(text)
		if _, taken := host.routes[p.matchIn(false, host.form)]; len(text) <= routing.MaxPath && !taken {
			t.route(r, p)
		}
	}
	t.merging = was
}

// nameOf returns the name of the backend for a demand of the Ingress.
func (m *merging) nameOf(d demand) string {
	if m.closed {
		return routing.Unavailable
	}
	return d.name
}

// spelledFor reports whether the paths of a host are compared as they come although the Ingress compares them in their normal form,
// since an Ingress of another namespace has the host. Then nobody protects this one from paths that are spelled in another way.
func (m *merging) spelledFor(host *virtualHost) bool {
	return host.form == routing.AsSent && m.pathRules.form != routing.AsSent && host.origin.Object.Namespace != m.Ref.Namespace
}

// guardFor returns how the merged Ingress guards a host, if its route leads to this backend. Spelled says that the paths of the host
// must be in their normal form.
func (t *merge) guardFor(backend string, form routing.PathForm, spelled bool) guarding {
	rules := t.merging.pathRules
	if rules.unsafe != config.RejectUnsafe || !t.backends.protecting(backend, t.merging.closed) {
		return guarding{}
	}
	matched := rules.parameters == config.MatchParameters || rules.parameters == config.IgnoreParameters && form == routing.WithoutParameters
	return guarding{unsafe: true, parameters: !matched, spelling: spelled}
}

// formOf returns the form in which paths of a host are compared. If the merged Ingress belongs to the owner of the
// host, it decides, since it is the oldest with routes of the host. Otherwise the configuration decides.
func (t *merge) formOf(host string) routing.PathForm {
	if o := t.hosts.owners.First(host); o != nil && o.Namespace() != t.merging.Ref.Namespace {
		return routing.FormOf(t.cfg.Paths)
	}
	return t.merging.pathRules.form
}
