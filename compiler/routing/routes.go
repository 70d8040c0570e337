package routing

import (
	"fmt"
	"strings"

	networkingv1 "k8s.io/api/networking/v1"

	"github.com/hapsnap/hapsnap/compiler/diag"
	"github.com/hapsnap/hapsnap/compiler/inputs"
	"github.com/hapsnap/hapsnap/compiler/options"
	"github.com/hapsnap/hapsnap/internal/manifests"
	"github.com/hapsnap/hapsnap/internal/printable"
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
