package routing

import (
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"

	"github.com/hapsnap/hapsnap/compiler/diag"
	"github.com/hapsnap/hapsnap/compiler/inputs"
	"github.com/hapsnap/hapsnap/compiler/migrate"
	"github.com/hapsnap/hapsnap/compiler/options"
	"github.com/hapsnap/hapsnap/compiler/policy"
	"github.com/hapsnap/hapsnap/internal/printable"
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

// parameters are what an IngressClass gives to its Ingresses: the options of a
// ConfigMap. Those that cannot be had may protect something, and are closed.
type parameters struct {
	origin Origin // the IngressClass, or the ConfigMap once it is found
	values options.Values
	source inputs.Object[corev1.ConfigMap]
}

// position returns the place of an annotation's default.
func (p *parameters) position(annotation string) diag.Position {
	return p.originOf(annotation).Position
}

// originOf returns the ConfigMap and the place of an annotation's default.
func (p *parameters) originOf(annotation string) Origin {
	key := annotation
	if _, ok := p.source.Value.Data[key]; !ok {
		key = annotation[len(options.Prefix):]
	}
	return originOf(p.source, "data", key)
}

// readParameters reads the parameters of the classes that are ours.
func (t *translation) readParameters(objects []inputs.Object[networkingv1.IngressClass]) {
	for _, class := range objects {
		if class.Value.Spec.Controller == t.cfg.ControllerClass && class.Value.Spec.Parameters != nil {
			t.parameters[class.Ref.Name] = t.parametersOf(class)
		}
	}
}

func (t *translation) parametersOf(class inputs.Object[networkingv1.IngressClass]) *parameters {
	ref := *class.Value.Spec.Parameters
	closed := &parameters{origin: originOf(class, "spec", "parameters"), values: options.Values{Closed: true}}
	refuse := func(field, message, hint string) *parameters {
		t.found = append(t.found, diag.Diagnostic{
			Severity: diag.Error, Position: class.Position("spec", "parameters", field), Object: class.Ref, Hint: hint,
			Message: message + "; the Ingresses of the class answer 503",
		})
		return closed
	}
	const want = "use kind: ConfigMap without apiGroup, scope: Namespace, and a namespace"
	switch {
	case ref.Kind != "ConfigMap":
		return refuse("kind", fmt.Sprintf("parameters of kind %s are not supported", printable.Quoted(ref.Kind)), want)
	case ref.APIGroup != nil && *ref.APIGroup != "":
		return refuse("apiGroup", fmt.Sprintf("parameters of API group %s are not supported", printable.Quoted(*ref.APIGroup)), want)
	case ref.Scope == nil || *ref.Scope != networkingv1.IngressClassParametersReferenceScopeNamespace || ref.Namespace == nil || *ref.Namespace == "":
		return refuse("scope", "parameters name no namespace, and a ConfigMap has one", want)
	}
	name := snapshots.SecretName{Namespace: *ref.Namespace, Name: ref.Name}
	source, exists := t.configMaps.find(name)
	if !exists {
		return refuse("name", fmt.Sprintf("ConfigMap %s does not exist", name), "create it, or correct the name")
	}
	p := &parameters{source: source}
	annotations := options.Parameters(source.Value.Data)
	var problems []options.Problem
	p.values, problems = options.Read(options.OnClass, annotations)
	p.origin = originOf(source, "data")
	t.reportInherited(p, problems)
	return p
}

// reportInherited reports problems of the parameters of a class.
func (t *translation) reportInherited(p *parameters, problems []options.Problem) {
	for _, x := range problems {
		t.found = append(t.found, diag.Diagnostic{
			Severity: x.Severity, Position: p.position(x.Annotation), Object: p.origin.Object, Message: x.Message, Hint: x.Hint,
		})
	}
}

// inherited returns the parameters of the class of an Ingress, or nil.
func (t *translation) inherited(ing ingress) *parameters { return t.parameters[t.classes.nameOf(ing)] }

// protected reports whether an Ingress, or its class, has an option that
// protects something, and what says so.
func (t *translation) protected(ing ingress) (what string, at diag.Position) {
	if name := options.Protects(ing.Value.Annotations); name != "" {
		return "annotation " + name, ing.Position("metadata", "annotations", name)
	}
	if p := t.inherited(ing); p != nil && p.values.Protect() {
		return "IngressClass " + t.classes.nameOf(ing), ing.Position("spec")
	}
	if name := t.foreignProtection(ing); name != "" {
		return "annotation " + name, ing.Position("metadata", "annotations", name)
	}
	return "", diag.Position{}
}

func (t *translation) protects(ing ingress) bool {
	what, _ := t.protected(ing)
	return what != ""
}

// newestDefault returns the name of the class of ours that Ingresses without one
// have: of several defaults the newest, as the API server has it.
func newestDefault(objects []inputs.Object[networkingv1.IngressClass], controller string) string {
	defaults := slices.DeleteFunc(slices.Clone(objects), func(o inputs.Object[networkingv1.IngressClass]) bool {
		return o.Value.Spec.Controller != controller || o.Value.Annotations[networkingv1.AnnotationIsDefaultIngressClass] != "true"
	})
	if len(defaults) == 0 {
		return ""
	}
	return slices.MinFunc(defaults, func(a, b inputs.Object[networkingv1.IngressClass]) int {
		if c := b.Value.CreationTimestamp.Compare(a.Value.CreationTimestamp.Time); c != 0 {
			return c
		}
		return a.Ref.Compare(b.Ref)
	}).Ref.Name
}

// heedForeign reports the annotations of other controllers that an Ingress has and that are
// not obeyed. Whoever changes the class of an Ingress by hand, or has hapsnap take over the
// class of another controller, would else serve what those protected to everybody. So an
// Ingress with one that keeps requests out is closed, until an option of ours says the same,
// or the administrator says that they mean nothing.
func (t *translation) heedForeign(ing ingress) {
	if t.cfg.IgnoreForeign {
		return
	}
	if t.reportForeign(ing, "the routes of this Ingress answer 503") {
		t.asked.denied = true
	}
	t.reportPatterns(ing)
}

// isForeignCanary reports whether an Ingress is a canary to another controller, and not to us,
// and says so. Such a one gets nothing: as an Ingress like others it might take, older or first by
// name, the routes that it was to share, all of their requests and without what protects them.
func (t *translation) isForeignCanary(ing ingress) bool {
	if t.cfg.IgnoreForeign || len(ing.Value.Annotations) == 0 {
		return false
	}
	unheeded := migrate.FindUnheeded(ing.Value.Annotations)
	i := slices.IndexFunc(unheeded, func(u migrate.Unheeded) bool { return slices.Contains(u.Instead, options.Prefix+"canary") })
	if i < 0 {
		return false
	}
	t.reportForeign(ing, "this Ingress gets nothing")
	t.report(diag.Error, ing, ing.Position("metadata", "annotations", unheeded[i].Annotation),
		fmt.Sprintf("annotation %s of %s makes this Ingress a canary there; here it gets nothing", unheeded[i].Annotation, unheeded[i].Controller),
		"use "+options.Prefix+"canary, as compiler migrate does")
	return true
}

// reportForeign reports the annotations of other controllers that are not obeyed, and whether one
// of them protects something; then is what becomes of the Ingress.
func (t *translation) reportForeign(ing ingress, then string) (protects bool) {
	for _, u := range migrate.FindUnheeded(ing.Value.Annotations) {
		if slices.Contains(u.Instead, options.Prefix+"canary") {
			continue // see isForeignCanary
		}
		severity, message := diag.Warning, fmt.Sprintf("annotation %s of %s is not obeyed", u.Annotation, u.Controller)
		if u.Protects {
			severity, message = diag.Error, message+", and it protects something; "+then
			protects = true
		}
		hint := strings.TrimSuffix(u.Note, ".")
		if len(u.Instead) > 0 {
			hint = "use " + strings.Join(u.Instead, ", ") + ", as compiler migrate does"
		}
		if u.Protects {
			hint = strings.TrimPrefix(hint+"; if it means nothing here, remove it, or set foreignAnnotations: ignore", "; ")
		}
		t.report(severity, ing, ing.Position("metadata", "annotations", u.Annotation), message, hint)
	}
	return protects
}

// reportPatterns reports paths that are regular expressions to another controller, and are
// matched letter by letter here.
func (t *translation) reportPatterns(ing ingress) {
	if t.asked.expressions || !migrate.HasPatterns(ing.Value.Annotations) {
		return
	}
	for i, rule := range ing.Value.Spec.Rules {
		if rule.HTTP == nil {
			continue
		}
		for j, p := range rule.HTTP.Paths {
			if strings.ContainsAny(p.Path, `^$()*[]|\+?{}`) {
				t.report(diag.Warning, ing, ing.Position("spec", "rules", i, "http", "paths", j, "path"),
					fmt.Sprintf("path %s is a regular expression of another controller, and is matched as it stands", printable.Quoted(p.Path)),
					"write it as a Prefix or Exact path; rewrite-path may hold an expression")
			}
		}
	}
}

// foreignProtection returns an annotation of another controller that protects an Ingress and is
// not obeyed, "" if there is none.
func (t *translation) foreignProtection(ing ingress) string {
	if t.cfg.IgnoreForeign {
		return ""
	}
	for _, u := range migrate.FindUnheeded(ing.Value.Annotations) {
		if u.Protects {
			return u.Annotation
		}
	}
	return ""
}

// usesExpressions reports whether the paths of an Ingress that are ImplementationSpecific are
// expressions.
func (t *translation) usesExpressions(ing ingress) bool {
	class := t.inherited(ing)
	text, own := ing.Value.Annotations[options.Prefix+options.PathType]
	if !own && class == nil {
		return false // as most
	}
	var values options.Values
	if own {
		values, _ = options.Read(options.OnIngress, map[string]string{options.Prefix + options.PathType: text})
	}
	if class != nil {
		values = values.Inherit(class.values)
	}
	settings, _, _ := options.Resolve(values)
	return settings.Expressions
}
