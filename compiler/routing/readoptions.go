package routing

import (
	corev1 "k8s.io/api/core/v1"

	"github.com/hapsnap/hapsnap/compiler/diag"
	"github.com/hapsnap/hapsnap/compiler/inputs"
	"github.com/hapsnap/hapsnap/compiler/options"
	"github.com/hapsnap/hapsnap/compiler/policy"
	"github.com/hapsnap/hapsnap/snapshots"
)

// asked is what an Ingress asks for beyond its spec.
type asked struct {
	values options.Values // of the Ingress, and those of its class that it has not
	class  *parameters    // nil if the class has none
	// needsOwnBackend says that its requests need a backend of their own.
	needsOwnBackend bool
	aliases         []string
	exactPaths      bool
	// expressions says that paths which are ImplementationSpecific are expressions.
	expressions bool
	paths       options.Paths
	pathRules   pathRules
	// passthrough says that TLS connections are passed on as they are.
	passthrough bool
	// denied says that the Ingress cannot be translated, and that its routes are
	// to refuse requests rather than leave them to others.
	denied bool
	// clients is what is asked of TLS clients; refused says that it cannot be
	// had, and that the routes answer 503.
	clients options.Clients
	refused bool
	// fallback is the Service for routes whose own has no usable endpoint.
	fallback    policy.ServiceRef
	redirectWWW bool
	// unusable are the paths that cannot be matched; protects says that those are closed.
	unusable map[pathAt]diag.Diagnostic
	protects bool
}

// readOptions takes in the annotations of the Ingress that is translated next.
func (t *translation) readOptions(ing ingress) {
	values, problems := options.Read(options.OnIngress, ing.Value.Annotations)
	t.reportProblems(ing.Ref, ing.Position, problems)
	class := t.inherited(ing)
	if class != nil {
		values = values.Inherit(class.values)
	}
	t.asked = asked{values: values, class: class, needsOwnBackend: values.Carried()}
	t.asked.pathRules = t.pathRules()
	if values.First() == "" {
		return // as most
	}
	settings, alone, _ := options.Resolve(values)
	if !t.asked.needsOwnBackend { // else it is said with a backend
		t.reportProblems(ing.Ref, ing.Position, alone[0])
	}
	if settings.CountsForwarded() && !t.cfg.TrustsForwarded && !values.Inherits("forwarded-for") {
		t.report(diag.Warning, ing, ing.Position(annotationPath("forwarded-for")...),
			"annotation "+options.Prefix+"forwarded-for has no effect: the configuration trusts no network, so that X-Forwarded-For is replaced",
			"the administrator lists the networks of proxies before HAProxy in forwarded.trusted")
	}
	t.asked.exactPaths, t.asked.passthrough, t.asked.clients = settings.ExactPaths, settings.Passthrough, settings.Clients
	t.asked.expressions = settings.Expressions
	t.asked.paths = settings.Paths
	t.asked.fallback, t.asked.redirectWWW = settings.Fallback, settings.RedirectWWW
	t.asked.pathRules = t.pathRules()
	if len(settings.Aliases) == 0 {
		return
	}
	if n := len(ruleHosts(ing.Value.Spec.Rules)); n != 1 {
		t.report(diag.Error, ing, ing.Position(annotationPath("server-alias")...),
			"annotation "+options.Prefix+"server-alias is for an Ingress with one host, and is ignored", "make an Ingress for each host")
		return
	}
	for _, alias := range settings.Aliases {
		if t.mayDecide(ing, ing.Position(annotationPath("server-alias")...), "the alias", alias) {
			t.asked.aliases = append(t.asked.aliases, alias)
		}
	}
	t.aliases[ing.Ref] = t.asked.aliases
}

// annotationPath is the place of an option in an object.
func annotationPath(name string) []any {
	return []any{"metadata", "annotations", options.Prefix + name}
}

// reportProblems adds what was found in the annotations of an object.
func (t *translation) reportProblems(object diag.Object, at func(...any) diag.Position, problems []options.Problem) {
	for _, p := range problems {
		t.found = append(t.found, diag.Diagnostic{
			Severity: p.Severity, Position: at("metadata", "annotations", p.Annotation), Object: object, Message: p.Message, Hint: p.Hint,
		})
	}
}

// reportAsked adds problems of the options of the Ingress at hand, which may be
// those of its class.
func (t *translation) reportAsked(ing ingress, problems []options.Problem) {
	var own, inherited []options.Problem
	for _, p := range problems {
		if p.Inherited {
			inherited = append(inherited, p)
		} else {
			own = append(own, p)
		}
	}
	t.reportProblems(ing.Ref, ing.Position, own)
	if t.asked.class != nil {
		t.reportInherited(t.asked.class, inherited)
	}
}

// applyOptions gives a new backend what its Ingress and its Service ask for. If a part
// of it that protects something cannot be had, nothing is served.
func (t *translation) applyOptions(b *Backend, ing ingress, r resolved) {
	service, exists := t.services[r.service]
	var offered options.Values
	if exists {
		offered = t.serviceOptions(service)
	}
	if b.Name == Unavailable || (!t.asked.needsOwnBackend && !offered.Carried() && !r.port.Carried()) {
		return // what cannot be named is one for all
	}
	by := asker{ingress: ing, values: []options.Values{t.asked.values.Inherit(r.port), offered}}
	if exists {
		by.service = &service
	}
	settings, problems, closed := options.Resolve(by.values...)
	t.reportAsked(ing, problems[0])
	if exists {
		t.reportProblems(service.Ref, service.Position, problems[1])
	}
	if t.asked.class != nil {
		b.Origins = append(b.Origins, t.asked.class.origin)
	}
	if name := offered.First(); name != "" {
		b.Origins = append(b.Origins, originOf(service, "metadata", "annotations", name))
	}
	if closed || t.asked.refused || !t.findLists(&settings.Protection, by) || !t.authenticate(&settings, by) || !t.addSnippet(b, ing, settings.Snippet) {
		b.Targets = nil
		t.closed[b.Name] = true
		return
	}
	b.Filters = settings.Filters()
	if p := settings.Protection; p.Any() {
		b.Protection = &p
	}
	if u := settings.Upstream; u != (policy.Upstream{}) {
		nameCookie(&u, r)
		t.nameSecrets(u.TLS, settings.ServerSecrets, by)
		b.Upstream = &u
	}
}

// serviceOptions returns the options of a Service, and reports them when it is first met.
func (t *translation) serviceOptions(service inputs.Object[corev1.Service]) options.Values {
	name := snapshots.SecretName{Namespace: service.Ref.Namespace, Name: service.Ref.Name}
	values, known := t.offered[name]
	if !known {
		var problems []options.Problem
		values, problems = options.Read(options.OnService, service.Value.Annotations)
		t.reportProblems(service.Ref, service.Position, problems)
		t.offered[name] = values
	}
	return values
}

// asker are the objects whose options a backend carries: an Ingress, and the
// Service that it leads to if that exists. They are of one namespace.
type asker struct {
	ingress ingress
	service *service
	values  []options.Values // of the Ingress, of the Service
}

// origin is the object and the place of an option's value that holds.
func (a asker) origin(option string) Origin {
	if options.Giver(option, a.values...) == 1 && a.service != nil {
		return originOf(*a.service, annotationPath(option)...)
	}
	return originOf(a.ingress, annotationPath(option)...)
}

// report reports an option whose value leads to nothing. The routes are closed
// for it.
func (a asker) report(t *translation, option, message, hint string) {
	a.reportAs(t, diag.Error, option, message+"; the routes that it protects answer 503", hint)
}

// reportAs reports something of an option's value.
func (a asker) reportAs(t *translation, severity diag.Severity, option, message, hint string) {
	at, title := a.origin(option), "annotation "+options.Prefix+option
	if t.asked.class != nil && options.Giver(option, a.values...) == 0 && a.values[0].Inherits(option) {
		at, title = t.asked.class.originOf(options.Prefix+option), "parameter "+option
	}
	t.found = append(t.found, diag.Diagnostic{
		Severity: severity, Position: at.Position, Object: at.Object, Hint: hint,
		Message: title + message,
	})
}
