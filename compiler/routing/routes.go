package routing

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"

	"github.com/hapsnap/hapsnap/compiler/diag"
	"github.com/hapsnap/hapsnap/compiler/inputs"
	"github.com/hapsnap/hapsnap/compiler/options"
	"github.com/hapsnap/hapsnap/compiler/policy"
	"github.com/hapsnap/hapsnap/internal/manifests"
	"github.com/hapsnap/hapsnap/internal/printable"
	"github.com/hapsnap/hapsnap/snapshots"
)

// ingress adds what one valid Ingress asks for, as far as no older one has it, without the
// paths that cannot be matched.
func (t *translation) ingress(ing ingress, unusable map[pathAt]diag.Diagnostic) {
	t.readOptions(ing)
	t.heedForeign(ing)
	t.asked.unusable, t.asked.protects = unusable, len(unusable) > 0 && t.protects(ing)
	t.askClients(ing)
	spec := ing.Value.Spec
	if spec.DefaultBackend != nil {
		t.defaultBackend(ing, *spec.DefaultBackend)
	}
	for i, rule := range spec.Rules {
		t.rule(ing, i, rule)
	}
	for i, entry := range spec.TLS {
		t.tlsEntry(ing, i, entry)
	}
	t.redirectWWW(ing)
}

// defaultBackend takes the default backend, which there is one of for all
// Ingresses together.
func (t *translation) defaultBackend(ing ingress, backend networkingv1.IngressBackend) {
	path := []any{"spec", "defaultBackend"}
	defer t.closeBarred(ing, "", path...)()
	name := t.resolve(ing, backend).name
	switch {
	case t.fallback == nil:
		t.fallback = &claim{by: ing, backend: t.backend(ing, backend, path), origin: originOf(ing, path...)}
		t.fallback.guard = t.guardFor(t.fallback.backend, FormOf(t.cfg.Paths))
	case t.fallback.backend != name:
		t.reportLost(diag.Error, ing, t.fallback.by, ing.Position(path...),
			"defaultBackend is not used: it was taken by "+precedes(t.fallback.by, ing),
			"there is one for all Ingresses; use a rule with a host and path / instead"+winnerAt(t.fallback.origin))
	}
}

// rule adds the routes of one rule. A host without paths is known all the
// same: its requests get the default backend, and not the rules of others.
func (t *translation) rule(ing ingress, i int, rule networkingv1.IngressRule) {
	t.ruleOf(ing, i, rule, rule.Host, "spec", "rules", i, "host")
	if rule.Host == "" {
		return
	}
	for _, alias := range t.asked.aliases {
		if alias != normalHost(rule.Host) {
			t.ruleOf(ing, i, rule, alias, annotationPath("server-alias")...)
		}
	}
}

// ruleOf adds the routes of a rule for one host, named at the given place.
func (t *translation) ruleOf(ing ingress, i int, rule networkingv1.IngressRule, host string, at ...any) {
	key := hostName(host)
	standing, owner := t.standingOf(ing, key)
	if standing == strange {
		t.reportStrange(ing, ing.Position(at...), "the rule", host, owner)
		return
	}
	defer t.closeBarred(ing, key, at...)()
	if t.hosts[key] == nil {
		t.hosts[key] = &virtualHost{origin: originOf(ing, at...), form: t.formOf(ing, key), routes: map[PathMatch]claim{}}
	}
	t.hosts[key].open = t.hosts[key].open || standing == owns && t.servesAll()
	t.reportForm(ing, key, host)
	t.claimConnections(ing, i, rule, host, originOf(ing, at...))
	if rule.HTTP == nil {
		return
	}
	for j, p := range rule.HTTP.Paths {
		if _, left := t.asked.unusable[pathAt{i, j}]; !left {
			t.route(ing, host, i, j, p)
		} else if t.asked.protects {
			t.shutPath(ing, host, i, j, p)
		} else if standing == owns {
			t.hosts[key].held = true
		}
	}
}

// reportForm reports that another Ingress says how the paths of a host are compared.
func (t *translation) reportForm(ing ingress, key, host string) {
	rules, holds := t.asked.pathRules, t.hosts[key].form
	if !rules.said || rules.form == holds {
		return
	}
	option := "path-parameters"
	if t.asked.paths.Normalize != nil && (rules.form == AsSent || holds == AsSent) {
		option = "normalize-paths"
	}
	t.report(diag.Warning, ing, ing.Position(annotationPath(option)...),
		"annotation "+options.Prefix+option+" is not used for the paths"+ofHost(host)+": "+t.hosts[key].origin.Object.String()+" has the host, and says how they are compared",
		"say it there")
}

// shutPath has an Ingress that protects something refuse the requests that a path may have
// been meant for, which would else match a shorter path of somebody else.
func (t *translation) shutPath(ing ingress, host string, i, j int, p networkingv1.HTTPIngressPath) {
	if t.asked.expressions && isSpecific(p) {
		t.shutExpression(ing, host, i, j, p)
		return
	}
	if p.Path = asRequested(p.Path); len(p.Path) > maxPath {
		return // no request has it
	}
	was := t.asked.denied
	t.asked.denied = true
	t.route(ing, host, i, j, p)
	t.asked.denied = was
}

// route adds one route unless its match is taken.
func (t *translation) route(ing ingress, name string, i, j int, p networkingv1.HTTPIngressPath) {
	host := t.hosts[hostName(name)]
	path := []any{"spec", "rules", i, "http", "paths", j}
	at := originOf(ing, append(path, "path")...)
	match := matchOf(p, t.asked.exactPaths, host.form)
	if t.asked.expressions && isSpecific(p) {
		var usable bool
		if match, usable = t.expression(ing, host, name, p, at); !usable {
			if t.protects(ing) {
				t.shutPath(ing, name, i, j, p)
			}
			return
		}
	}
	winner, taken := host.routes[match]
	if !taken {
		backend := t.backend(ing, p.Backend, append(path, "backend"))
		c := claim{by: ing, backend: backend, origin: at, guard: t.guardFor(backend, host.form)}
		c.fallback = t.fallbackOf(ing, c)
		host.routes[match] = c
		return
	}
	what := fmt.Sprintf("path %s (%s)%s", printable.Quoted(orSlash(p.Path)), match.Type, ofHost(name))
	if same := orSlash(match.Path); same != orSlash(strings.TrimSuffix(p.Path, "/")) && same != p.Path {
		what += fmt.Sprintf(", which is compared as %s,", printable.Quoted(same))
	}
	hint := "remove one of the two" + winnerAt(winner.origin)
	if winner.backend == t.resolve(ing, p.Backend).name {
		t.reportLost(diag.Warning, ing, winner.by, at.Position, what+" is sent to the same backend by "+precedes(winner.by, ing), hint)
		return
	}
	t.reportLost(diag.Error, ing, winner.by, at.Position, what+" is not used: it was taken by "+precedes(winner.by, ing), hint)
}

// ofHost names the host of a rule in a message.
func ofHost(host string) string {
	if host == "" {
		return " of all hosts"
	}
	return " of host " + host
}

// winnerAt names the place of an older claim, if it is known.
func winnerAt(o Origin) string {
	if at := o.Position.String(); at != "" {
		return "; the other is at " + at
	}
	return ""
}

// hostName returns the name of a host in the model.
func hostName(host string) string {
	return strings.TrimPrefix(normalHost(host), "*")
}

// matchOf returns what a path matches. ImplementationSpecific is a prefix unless
// the Ingress says that it is exact, and an empty path is the root.
func matchOf(p networkingv1.HTTPIngressPath, exact bool, form PathForm) PathMatch {
	path := form.of(orSlash(p.Path))
	if *p.PathType == networkingv1.PathTypeExact || (exact && *p.PathType == networkingv1.PathTypeImplementationSpecific) {
		return PathMatch{Exact, path}
	}
	return PathMatch{Prefix, strings.TrimSuffix(path, "/")}
}

func orSlash(path string) string {
	if path == "" {
		return "/"
	}
	return path
}

// originOf returns an object and the place of a field in it.
func originOf[T any](o inputs.Object[T], path ...any) Origin {
	return Origin{Object: o.Ref, Position: o.Position(path...), Field: manifests.FieldPath(path)}
}

// modelRoutes returns the routes of a claim in the order in which they are tried. Where there is
// a fallback, all others go on to the next one while they have no usable server.
func (c claim) modelRoutes() []Route {
	out := append(slices.Clone(c.before), Route{Backend: c.backend, Protects: c.guard.unsafe, Origin: c.origin})
	if c.fallback == "" {
		return out
	}
	for i := range out {
		out[i].Yields = true
	}
	return append(out, Route{Backend: c.fallback, Protects: c.guard.unsafe, Origin: c.origin})
}

// fallbackOf returns the backend that is like the one of a route of the Ingress at hand, but has
// the endpoints of the fallback Service. It is "" where there is none, and where the route is
// answered 503 whatever endpoints there are: what is closed stays so.
func (t *translation) fallbackOf(ing ingress, c claim) string {
	ref := t.asked.fallback
	if ref.Name == "" || t.asked.denied || t.closed[c.backend] || c.backend == Unavailable {
		return ""
	}
	const option = "fallback-service"
	at := originOf(ing, annotationPath(option)...)
	refuse := func(message, hint string) string {
		t.report(diag.Warning, ing, at.Position, "annotation "+options.Prefix+option+": "+message+"; without it, requests are answered 503", hint)
		return ""
	}
	name := snapshots.SecretName{Namespace: ing.Ref.Namespace, Name: ref.Name}
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
	if own := options.Different(service.Value.Annotations, served.Annotations, ing.Value.Annotations); len(own) > 0 {
		return refuse(fmt.Sprintf("Service %s has %s%s, which does not hold for the route", name, options.Prefix, own[0]), "its endpoints are asked as those of the route are: set it on the Ingress")
	}
	port := networkingv1.ServiceBackendPort{Number: int32(ref.Port)}
	if ref.Port == 0 {
		port.Number = firstPort(service.Value)
	}
	r := t.resolvePort(service.Value, name, port, fmt.Sprint(port.Number))
	switch {
	case len(r.targets) == 0:
		return refuse(r.finding.message, r.finding.hint)
	case len(from.Targets) > 0 && from.Targets[0].Service == r.targets[0].Service:
		return refuse(fmt.Sprintf("Service %s is that of the route", name), "name another one")
	case len(from.Targets) > 0 && ing.Value.Annotations[options.Prefix+"backend-protocol"] == "" && !options.SameProtocol(t.appProtocol(from.Targets[0]), t.appProtocol(r.targets[0])):
		return refuse(fmt.Sprintf("Service %s has another appProtocol than that of the route", name), "give both ports the same, or set "+options.Prefix+"backend-protocol")
	}
	backend := from.Name + "_" + serviceAndPort(r)
	t.variant(from, c, backend, r.targets, at)
	return backend
}

// firstPort returns the number of the first TCP port of a Service, 0 if it has none.
func firstPort(service *corev1.Service) int32 {
	for _, p := range service.Spec.Ports {
		if p.Protocol == "" || p.Protocol == corev1.ProtocolTCP {
			return p.Port
		}
	}
	return 0
}

// redirectWWW gives the Ingress at hand the names of its hosts with www. before them, or without
// it, to redirect from. Whoever names such a host in a rule, or as an alias, keeps it, however
// young: nobody is redirected from what somebody serves.
func (t *translation) redirectWWW(ing ingress) {
	if !t.asked.redirectWWW || t.asked.denied {
		return
	}
	at := originOf(ing, annotationPath("redirect-www")...)
	for _, host := range ruleHosts(ing.Value.Spec.Rules) {
		host = normalHost(host)
		from := otherName(host)
		if message, _ := checkHost(from); strings.HasPrefix(host, "*.") || message != "" || t.routed[from] || t.hosts[from] != nil {
			continue
		}
		if !t.mayDecide(ing, at.Position, "annotation redirect-www", host) || !t.mayDecide(ing, at.Position, "annotation redirect-www", from) {
			continue
		}
		// Names of Services hold no underscore, so that no other backend has this name.
		backend := "hapsnap_www_" + host
		t.backends[backend] = &Backend{Name: backend, Filters: []policy.Filter{policy.HostRedirect{Host: host, Code: 308}}, Origins: []Origin{at}}
		h := &virtualHost{origin: at, form: t.formOf(ing, from), routes: map[PathMatch]claim{}}
		h.routes[PathMatch{Type: Prefix}] = claim{by: ing, backend: backend, origin: at}
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
func (t *translation) expression(ing ingress, host *virtualHost, name string, p networkingv1.HTTPIngressPath, at Origin) (PathMatch, bool) {
	match := PathMatch{Expression, p.Path}
	if _, taken := host.routes[match]; taken {
		return match, true
	}
	problem, hint := "", "use pathType Prefix or Exact where they do"
	never := ""
	if host.form != AsSent {
		never = unmatchable(p.Path)
	}
	switch {
	case never != "":
		problem = fmt.Sprintf("is an expression with %s, which stands in no path as paths are compared", never)
		hint = "letters, digits and the like stand as they are, all others percent-encoded with capital digits, slashes are single, and there are no dot segments"
	case t.expressions[ing.Ref.Namespace] >= mostOfNamespace:
		problem = fmt.Sprintf("is one expression more than the %d of a namespace", mostOfNamespace)
	case len(host.expressions) >= mostOfHost:
		problem = fmt.Sprintf("is one expression more than the %d of a host", mostOfHost)
	case stepsOf(append(slices.Clip(host.expressions), p.Path)) > mostSteps:
		problem = fmt.Sprintf("is an expression with which those of the host may take more than %d steps on one path", mostSteps)
	}
	if problem == "" {
		host.expressions = append(host.expressions, p.Path)
		t.expressions[ing.Ref.Namespace]++
		return match, true
	}
	t.report(diag.Error, ing, at.Position, fmt.Sprintf("path %s%s %s; it is not used", printable.Quoted(p.Path), ofHost(name), problem), hint)
	return match, false
}

// shutExpression refuses the requests that an expression may have been meant for, as far as no
// other path has them.
func (t *translation) shutExpression(ing ingress, host string, i, j int, p networkingv1.HTTPIngressPath) {
	was := t.asked
	t.asked.denied, t.asked.expressions, t.asked.exactPaths = true, false, false
	for _, p.Path = range shutAs(p.Path) {
		if _, taken := t.hosts[hostName(host)].routes[matchOf(p, false, t.hosts[hostName(host)].form)]; len(p.Path) <= maxPath && !taken {
			t.route(ing, host, i, j, p)
		}
	}
	t.asked = was
}

// reportUnreached reports expressions that a prefix keeps all requests from.
func (t *translation) reportUnreached(h *virtualHost, name string) {
	for _, e := range h.expressions {
		c := h.routes[PathMatch{Expression, e}]
		literal := literalOf(e)
		for _, prefix := range slices.SortedFunc(maps.Keys(h.routes), PathMatch.compare) {
			if prefix.Type != Prefix || !strings.HasPrefix(literal+"/", strings.ToLower(prefix.Path)+"/") || h.precedes(PathMatch{Expression, e}, prefix) {
				continue
			}
			t.reportLost(diag.Warning, c.by, h.routes[prefix].by, c.origin.Position,
				fmt.Sprintf("path %s%s gets no request that the prefix %s of %s takes", printable.Quoted(e), ofHost(name), printable.Quoted(orSlash(prefix.Path)), h.routes[prefix].by.Ref),
				"an expression comes before shorter prefixes of its namespace only")
		}
	}
}

func isSpecific(p networkingv1.HTTPIngressPath) bool {
	return p.PathType != nil && *p.PathType == networkingv1.PathTypeImplementationSpecific
}
