package ingress

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"

	"github.com/hapsnap/hapsnap/compiler/diag"
	"github.com/hapsnap/hapsnap/compiler/options"
	"github.com/hapsnap/hapsnap/compiler/policy"
	"github.com/hapsnap/hapsnap/compiler/routing"
	"github.com/hapsnap/hapsnap/compiler/routing/hostname"
	"github.com/hapsnap/hapsnap/compiler/routing/ownership"
	"github.com/hapsnap/hapsnap/internal/printable"
	"github.com/hapsnap/hapsnap/snapshots"
)

// merge adds what one valid Ingress asks for, as far as no older one has it, without the
// paths that cannot be matched.
func (t *merge) merge(c *claims, protects bool) {
	t.begin(c, protects)
	t.add(c.foreign...)
	t.turn.denied = c.closed
	t.turn.refused = t.names.askClients(c, t.turn.aliases)
	t.mergeDefault()
	t.mergeRules()
	t.mergeTLS()
	t.redirectWWW()
}

// begin begins the turn of an Ingress, and finds out which aliases it may have.
func (t *merge) begin(c *claims, protects bool) {
	t.turn = turn{claims: c, protects: protects, exactPaths: c.exactPaths, expressions: c.expressions}
	t.add(c.found...)
	if len(c.aliases) == 0 {
		return
	}
	for _, alias := range c.aliases {
		if t.mayDecide(c.Claimant, c.Position(annotationPath("server-alias")...), "the alias", alias) {
			t.turn.aliases = append(t.turn.aliases, alias)
		}
	}
	t.aliases[c.Ref] = t.turn.aliases
}

func (t *merge) mergeRules() {
	for _, r := range t.turn.rules {
		t.rule(r)
	}
}

func (t *merge) mergeTLS() {
	c := t.turn.claims
	for _, entry := range c.tls {
		t.add(entry.found...)
		for _, h := range entry.hosts {
			if t.mayDecide(c.Claimant, h.origin.Position, "Secret "+entry.secret.String(), h.host) {
				t.names.take(c.Claimant, entry, h.host, h.origin)
			}
		}
	}
}

// mergeDefault takes the default backend, which there is one of for all
// Ingresses together.
func (t *merge) mergeDefault() {
	by, f := t.turn.claims, t.turn.fallback
	if f == nil {
		return
	}
	defer t.closeBarred("", f.origin.Position)()
	switch {
	case t.fallback == nil:
		t.fallback = &claim{by: by, backend: t.backend(f.backend), origin: f.origin}
		t.fallback.guard = t.guardFor(t.fallback.backend, routing.FormOf(t.cfg.Paths))
	case t.fallback.backend != t.nameOf(f.backend):
		t.reportLost(diag.Error, by.Claimant, t.fallback.by.Claimant, f.origin.Position,
			"defaultBackend is not used: it was taken by "+t.fallback.by.Precedes(by.Claimant),
			"there is one for all Ingresses; use a rule with a host and path / instead"+winnerAt(t.fallback.origin))
	}
}

// rule adds the routes of one rule. A host without paths is known all the
// same: its requests get the default backend, and not the rules of others.
func (t *merge) rule(r rule) {
	t.ruleOf(r)
	if r.host == "" {
		return
	}
	for _, alias := range t.turn.aliases {
		if alias != hostname.Normal(r.host) {
			of := r
			of.host, of.key, of.origin = alias, hostname.Of(alias), t.turn.Origin(annotationPath("server-alias")...)
			t.ruleOf(of)
		}
	}
}

// ruleOf adds the routes of a rule for one host.
func (t *merge) ruleOf(r rule) {
	by := t.turn.claims
	standing, owner := t.owners.StandingOf(by.Ref.Namespace, r.key)
	if standing == ownership.Strange {
		t.reportStrange(by.Claimant, r.origin.Position, "the rule", r.host, owner)
		return
	}
	defer t.closeBarred(r.key, r.origin.Position)()
	host := t.hosts[r.key]
	if host == nil {
		host = &virtualHost{origin: r.origin, form: t.formOf(r.key), routes: map[routing.PathMatch]claim{}}
		t.hosts[r.key] = host
	}
	host.open = host.open || standing == ownership.Owns && t.servesAll()
	t.reportForm(r, host)
	t.claimConnections(r)
	for _, p := range r.paths {
		if _, left := by.unusable[p.at]; !left {
			t.route(r, p)
		} else if t.turn.protects {
			t.shutPath(r, p)
		} else if standing == ownership.Owns {
			host.held = true
		}
	}
}

// servesAll reports whether the Ingress at hand serves clients without a
// certificate too.
func (t *merge) servesAll() bool {
	return t.turn.clients.Authority == "" && !t.turn.denied && !t.turn.values.Closed
}

// reportForm reports that another Ingress says how the paths of a host are compared.
func (t *merge) reportForm(r rule, host *virtualHost) {
	rules, holds := t.turn.pathRules, host.form
	if !rules.said || rules.form == holds {
		return
	}
	option := "path-parameters"
	if t.turn.paths.Normalize != nil && (rules.form == routing.AsSent || holds == routing.AsSent) {
		option = "normalize-paths"
	}
	t.report(diag.Warning, t.turn.Claimant, t.turn.Position(annotationPath(option)...),
		"annotation "+options.Prefix+option+" is not used for the paths"+ofHost(r.host)+": "+host.origin.Object.String()+" has the host, and says how they are compared",
		"say it there")
}

// shutPath has an Ingress that protects something refuse the requests that a path may have
// been meant for, which would else match a shorter path of somebody else.
func (t *merge) shutPath(r rule, p path) {
	if t.turn.expressions && p.isSpecific() {
		t.shutExpression(r, p)
		return
	}
	if p = p.as(routing.AsRequested(p.text)); len(p.text) > routing.MaxPath {
		return // no request has it
	}
	was := t.turn.denied
	t.turn.denied = true
	t.route(r, p)
	t.turn.denied = was
}

// as returns a path with another text.
func (p path) as(text string) path {
	p.text, p.match = text, routing.PathMatch{}
	return p
}

// matchOf returns what a path of the Ingress at hand matches of those in a form.
func (t *merge) matchOf(p path, form routing.PathForm) routing.PathMatch {
	if p.match.Type != "" && form == t.turn.pathRules.form && t.turn.exactPaths == t.turn.claims.exactPaths {
		return p.match // as nearly always
	}
	return p.matchIn(t.turn.exactPaths, form)
}

// route adds one route unless its match is taken.
func (t *merge) route(r rule, p path) {
	host, by := t.hosts[r.key], t.turn.claims
	match := t.matchOf(p, host.form)
	if t.turn.expressions && p.isSpecific() {
		var usable bool
		if match, usable = t.expression(r, host, p); !usable {
			if t.turn.protects {
				t.shutPath(r, p)
			}
			return
		}
	}
	winner, taken := host.routes[match]
	if !taken {
		backend := t.backend(p.backend)
		c := claim{by: by, backend: backend, origin: p.origin, guard: t.guardFor(backend, host.form)}
		c.fallback = t.fallbackOf(c)
		host.routes[match] = c
		return
	}
	what := fmt.Sprintf("path %s (%s)%s", printable.Quoted(orSlash(p.text)), match.Type, ofHost(r.host))
	if same := orSlash(match.Path); same != orSlash(strings.TrimSuffix(p.text, "/")) && same != p.text {
		what += fmt.Sprintf(", which is compared as %s,", printable.Quoted(same))
	}
	hint := "remove one of the two" + winnerAt(winner.origin)
	if winner.backend == t.nameOf(p.backend) {
		t.reportLost(diag.Warning, by.Claimant, winner.by.Claimant, p.origin.Position, what+" is sent to the same backend by "+winner.by.Precedes(by.Claimant), hint)
		return
	}
	t.reportLost(diag.Error, by.Claimant, winner.by.Claimant, p.origin.Position, what+" is not used: it was taken by "+winner.by.Precedes(by.Claimant), hint)
}

// modelRoutes returns the routes of a claim in the order in which they are tried. Where there is
// a fallback, all others go on to the next one while they have no usable server.
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

// fallbackOf returns the backend that is like the one of a route of the Ingress at hand, but has
// the endpoints of the fallback Service. It is "" where there is none, and where the route is
// answered 503 whatever endpoints there are: what is closed stays so.
func (t *merge) fallbackOf(c claim) string {
	by, ref := t.turn.claims, t.turn.sorry
	if ref.Name == "" || t.turn.denied || t.closed[c.backend] || c.backend == routing.Unavailable {
		return ""
	}
	const option = "fallback-service"
	at := by.Origin(annotationPath(option)...)
	refuse := func(message, hint string) string {
		t.report(diag.Warning, by.Claimant, at.Position, "annotation "+options.Prefix+option+": "+message+"; without it, requests are answered 503", hint)
		return ""
	}
	name := snapshots.SecretName{Namespace: by.Ref.Namespace, Name: ref.Name}
	service, exists := t.services[name]
	switch {
	case !exists:
		return refuse(fmt.Sprintf("Service %s does not exist", name), "create it, or correct the name")
	}
	from := t.backends[c.backend]
	var served corev1.Service
	if len(from.Targets) > 0 {
		served = *t.services[serviceOf(from.Targets[0])].Value
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
	case len(from.Targets) > 0 && by.annotations[options.Prefix+"backend-protocol"] == "" && !options.SameProtocol(t.appProtocol(from.Targets[0]), t.appProtocol(r.targets[0])):
		return refuse(fmt.Sprintf("Service %s has another appProtocol than that of the route", name), "give both ports the same, or set "+options.Prefix+"backend-protocol")
	}
	backend := from.Name + "_" + serviceAndPort(r)
	t.variant(from, c, backend, r.targets, at)
	return backend
}

// redirectWWW gives the Ingress at hand the names of its hosts with www. before them, or without
// it, to redirect from. Whoever names such a host in a rule, or as an alias, keeps it, however
// young: nobody is redirected from what somebody serves.
func (t *merge) redirectWWW() {
	if !t.turn.redirectWWW || t.turn.denied {
		return
	}
	by := t.turn.claims
	at := by.Origin(annotationPath("redirect-www")...)
	for _, host := range by.ruleHosts {
		host = hostname.Normal(host)
		from := otherName(host)
		if message, _ := hostname.Check(from); strings.HasPrefix(host, "*.") || message != "" || t.routed[from] || t.hosts[from] != nil {
			continue
		}
		if !t.mayDecide(by.Claimant, at.Position, "annotation redirect-www", host) || !t.mayDecide(by.Claimant, at.Position, "annotation redirect-www", from) {
			continue
		}
		// Names of Services hold no underscore, so that no other backend has this name.
		backend := "hapsnap_www_" + host
		t.backends[backend] = &routing.Backend{Name: backend, Filters: []policy.Filter{policy.HostRedirect{Host: host, Code: 308}}, Origins: []routing.Origin{at}}
		h := &virtualHost{origin: at, form: t.formOf(from), routes: map[routing.PathMatch]claim{}}
		h.routes[routing.PathMatch{Type: routing.Prefix}] = claim{by: by, backend: backend, origin: at}
		t.hosts[from] = h
	}
}

// otherName returns a host with www. before it, or without it.
func otherName(host string) string {
	if rest, ok := strings.CutPrefix(host, "www."); ok {
		return rest
	}
	return "www." + host
}

// expression returns what a path matches that is an expression, unless there are too many.
// What is too many is left out, or closed if the Ingress protects something.
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
		problem = fmt.Sprintf("is an expression with %s, which stands in no path as paths are compared", never)
		hint = "letters, digits and the like stand as they are, all others percent-encoded with capital digits, slashes are single, and there are no dot segments"
	case t.expressions[t.turn.Ref.Namespace] >= routing.MostExpressionsOfNamespace:
		problem = fmt.Sprintf("is one expression more than the %d of a namespace", routing.MostExpressionsOfNamespace)
	case len(host.expressions) >= routing.MostExpressionsOfHost:
		problem = fmt.Sprintf("is one expression more than the %d of a host", routing.MostExpressionsOfHost)
	case routing.ExpressionSteps(append(slices.Clip(host.expressions), p.text)) > routing.MostExpressionSteps:
		problem = fmt.Sprintf("is an expression with which those of the host may take more than %d steps on one path", routing.MostExpressionSteps)
	}
	if problem == "" {
		host.expressions = append(host.expressions, p.text)
		t.expressions[t.turn.Ref.Namespace]++
		return match, true
	}
	t.report(diag.Error, t.turn.Claimant, p.origin.Position, fmt.Sprintf("path %s%s %s; it is not used", printable.Quoted(p.text), ofHost(r.host), problem), hint)
	return match, false
}

// shutExpression refuses the requests that an expression may have been meant for, as far as no
// other path has them.
func (t *merge) shutExpression(r rule, p path) {
	was, host := t.turn, t.hosts[r.key]
	t.turn.denied, t.turn.expressions, t.turn.exactPaths = true, false, false
	for _, text := range routing.ClosedPrefixes(p.text) {
		p = p.as(text)
		if _, taken := host.routes[p.matchIn(false, host.form)]; len(text) <= routing.MaxPath && !taken {
			t.route(r, p)
		}
	}
	t.turn = was
}

// reportUnreached reports expressions that a prefix keeps all requests from.
func (t *merge) reportUnreached(h *virtualHost, name string) {
	for _, e := range h.expressions {
		c := h.routes[routing.PathMatch{Type: routing.Expression, Path: e}]
		literal := routing.LiteralOf(e)
		for _, prefix := range slices.SortedFunc(maps.Keys(h.routes), routing.PathMatch.Compare) {
			if prefix.Type != routing.Prefix || !strings.HasPrefix(literal+"/", strings.ToLower(prefix.Path)+"/") || h.precedes(routing.PathMatch{Type: routing.Expression, Path: e}, prefix) {
				continue
			}
			t.reportLost(diag.Warning, c.by.Claimant, h.routes[prefix].by.Claimant, c.origin.Position,
				fmt.Sprintf("path %s%s gets no request that the prefix %s of %s takes", printable.Quoted(e), ofHost(name), printable.Quoted(orSlash(prefix.Path)), h.routes[prefix].by.Ref),
				"an expression comes before shorter prefixes of its namespace only")
		}
	}
}

// backend adds what the Ingress at hand sends requests to, and returns its name. What
// stands in the way of a backend is said once for each Ingress.
func (t *merge) backend(d demand) string {
	name := t.nameOf(d)
	b := t.backends[name]
	if b == nil {
		b = &routing.Backend{Name: name}
		t.backends[name] = b
		if !t.turn.denied {
			b.Targets = d.targets
			t.applyOptions(b, d.options)
		}
	}
	// The claims of one Ingress are merged after those of the other, so that this one is the last.
	if n := len(b.Origins); n > 0 && b.Origins[n-1].Object == t.turn.Ref {
		return name
	}
	b.Origins = append(b.Origins, d.origin)
	if d.problem != nil && !t.turn.denied {
		problem := *d.problem
		problem.Message += "; requests for it are answered 503"
		t.add(problem)
	}
	return name
}

// nameOf returns the name of the backend that a demand of the Ingress at hand leads to.
func (t *merge) nameOf(d demand) string {
	if t.turn.denied {
		return routing.Unavailable
	}
	return d.name
}

// applyOptions gives a new backend what its Ingress and its Service ask for. If a part
// of it that protects something cannot be had, nothing is served.
func (t *merge) applyOptions(b *routing.Backend, o *backendOptions) {
	t.add(o.found...)
	if o.plain {
		return
	}
	b.Origins = append(b.Origins, o.origins...)
	if !t.canHave(o) {
		b.Targets = nil
		t.closed[b.Name] = true
		return
	}
	b.Filters, b.Protection, b.Upstream, b.Snippet = o.filters, o.protects, o.upstream, o.snippet
	t.certs.takeForServers(o.secrets)
}

// canHave reports whether all can be had of options that protect something, and takes it. What
// comes after the first that cannot is not looked at.
func (t *merge) canHave(o *backendOptions) bool {
	if o.closed || t.turn.refused || !t.lists.take(o.lists) || !t.authenticate(o) {
		return false
	}
	if o.refused != nil {
		t.add(*o.refused)
	}
	return o.refused == nil
}

// authenticate takes what clients are let in by, and reports whether all of it can be had.
func (t *merge) authenticate(o *backendOptions) bool {
	if o.users != nil {
		t.users.take(*o.users)
	}
	if o.auth == nil {
		return true
	}
	t.add(o.auth.found...)
	if o.auth.refused != nil {
		t.add(*o.auth.refused)
		return false
	}
	b := t.backends[o.auth.backend.Name]
	if b == nil {
		made := o.auth.backend
		b = &made
		t.backends[b.Name] = b
	}
	if n := len(b.Origins); n == 0 || b.Origins[n-1].Object != t.turn.Ref {
		b.Origins = append(b.Origins, o.auth.origin)
	}
	return true
}
