package ingress

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/hapsnap/hapsnap/compiler/diag"
	"github.com/hapsnap/hapsnap/compiler/inputs"
	"github.com/hapsnap/hapsnap/compiler/options"
	"github.com/hapsnap/hapsnap/compiler/routing"
	"github.com/hapsnap/hapsnap/internal/printable"
)

// The annotation that named the class of an Ingress before there was a field for it.
const classAnnotation = "kubernetes.io/ingress.class"

// classes knows which class belongs to which controller.
type classes struct {
	cfg         Config
	controllers map[string]string // the controllers of the IngressClass objects, by name
	isDefault   bool              // a class of ours is the default
	hasDefault  bool              // any class is the default
	unnamed     string            // the class of our Ingresses that name none
}

func newClasses(objects []inputs.Object[networkingv1.IngressClass], cfg Config) classes {
	c := classes{cfg: cfg, controllers: make(map[string]string, len(objects))}
	for _, o := range objects {
		c.controllers[o.Ref.Name] = o.Value.Spec.Controller
		if o.Value.Annotations[networkingv1.AnnotationIsDefaultIngressClass] == "true" {
			c.hasDefault = true
			c.isDefault = c.isDefault || o.Value.Spec.Controller == cfg.ControllerClass
		}
	}
	c.unnamed = cmp.Or(newestDefault(objects, cfg.ControllerClass), cfg.IngressClass)
	return c
}

// nameOf returns the name of the class that one of our Ingresses has.
func (c classes) nameOf(ing ingress) string {
	field := ""
	if name := ing.Value.Spec.IngressClassName; name != nil {
		field = *name
	}
	return cmp.Or(ing.Value.Annotations[classAnnotation], field, c.unnamed)
}

// named returns the class that an Ingress names, "" for none.
func (classes) named(ing ingress) string {
	return classes{}.nameOf(ing)
}

// claim reports whether an Ingress is ours. It also returns what the author should know about that.
func (c classes) claim(ing ingress) (bool, []diag.Diagnostic) {
	annotation, field := ing.Value.Annotations[classAnnotation], ""
	if name := ing.Value.Spec.IngressClassName; name != nil {
		field = *name
	}
	switch {
	case annotation != "" && field != "" && field != annotation:
		ours := c.isOursByAnnotation(annotation)
		if !ours && !c.isOurs(field) {
			return false, nil
		}
		return ours, c.warn(ing, []any{"metadata", "annotations", classAnnotation},
			fmt.Sprintf("annotation %s says %s, and ingressClassName says %s: the annotation wins", classAnnotation, printable.Quoted(annotation), printable.Quoted(field)),
			"remove the annotation")
	case annotation != "":
		return c.isOursByAnnotation(annotation), nil
	case field != "":
		ours := c.isOurs(field)
		if _, exists := c.controllers[field]; ours || exists || field != c.cfg.IngressClass {
			return ours, nil // as nearly always, without a message that nobody reads
		}
		return false, c.warn(ing, []any{"spec", "ingressClassName"},
			fmt.Sprintf("ignored: there is no IngressClass %s", printable.Quoted(field)),
			"create it with spec.controller "+c.cfg.ControllerClass)
	}
	ours := c.isDefault || c.cfg.WatchWithoutClass
	if ours || c.hasDefault {
		return ours, nil
	}
	return false, c.warn(ing, []any{"spec"},
		"ignored: it names no class, and no IngressClass is the default",
		"set ingressClassName: "+c.cfg.IngressClass)
}

// IsOurs reports whether this compiler is responsible for an Ingress, according to its class.
func IsOurs(ing *networkingv1.Ingress, objects []inputs.Object[networkingv1.IngressClass], cfg Config) bool {
	ours, _ := newClasses(objects, cfg.withDefaults()).claim(ingress{Value: ing})
	return ours
}

// Census says how many Ingresses are compiled, and how many are not because of their class.
type Census struct {
	Compiled int          `json:"compiled"`
	Others   []ClassCount `json:"others,omitempty"` // the most frequent class first
}

// ClassCount is how many Ingresses have a class. The name is "" for those without one.
type ClassCount struct {
	Class     string `json:"class"`
	Ingresses int    `json:"ingresses"`
}

// CensusOf counts Ingresses by their classes.
func CensusOf(in inputs.Inputs, cfg Config) Census {
	classes, out, others := newClasses(in.Classes, cfg.withDefaults()), Census{}, map[string]int{}
	broken := make(map[diag.Object]bool, len(in.Broken))
	for _, ing := range in.Broken {
		broken[ing.Ref] = true
	}
	for _, ing := range slices.Concat(in.Ingresses, in.Broken) {
		if ours, _ := classes.claim(ing); ours {
			out.Compiled++
		} else {
			others[classes.named(ing)]++
		}
	}
	for class, n := range others {
		out.Others = append(out.Others, ClassCount{class, n})
	}
	slices.SortFunc(out.Others, func(a, b ClassCount) int {
		return cmp.Or(cmp.Compare(b.Ingresses, a.Ingresses), cmp.Compare(a.Class, b.Class))
	})
	return out
}

// Other returns how many Ingresses are of other classes.
func (c Census) Other() int {
	n := 0
	for _, o := range c.Others {
		n += o.Ingresses
	}
	return n
}

// mostClasses is the largest number of classes that a census names.
const mostClasses = 5

// String returns a text for people, such as "3 Ingresses compiled; 41 of other classes not looked
// at: nginx 40, internal 1".
func (c Census) String() string {
	text := fmt.Sprintf("%d Ingresses compiled", c.Compiled)
	if c.Compiled == 1 {
		text = "1 Ingress compiled"
	}
	if len(c.Others) == 0 {
		return text
	}
	var named []string
	for _, o := range c.Others[:min(len(c.Others), mostClasses)] {
		named = append(named, fmt.Sprintf("%s %d", cmp.Or(printable.Text(o.Class), "without a class"), o.Ingresses))
	}
	if more := len(c.Others) - mostClasses; more > 0 {
		named = append(named, fmt.Sprintf("and %d more classes", more))
	}
	return fmt.Sprintf("%s; %d of other classes not looked at: %s", text, c.Other(), strings.Join(named, ", "))
}

// Warning returns a warning with a hint if there are Ingresses but none is compiled. Otherwise it
// returns nil.
func (c Census) Warning(cfg Config) []diag.Diagnostic {
	if c.Compiled > 0 || len(c.Others) == 0 {
		return nil
	}
	cfg = cfg.withDefaults()
	hint := fmt.Sprintf("set ingressClassName: %s on those that are to be compiled", cfg.IngressClass)
	if class := c.Others[0].Class; class != "" {
		hint += fmt.Sprintf(", or compile those of another class: --ingress-class %s, with --controller-class if there is an IngressClass of that name", printable.Text(class))
	}
	return []diag.Diagnostic{{Severity: diag.Warning, Message: "none of the Ingresses is compiled, and every request is answered with 404: " + c.String(), Hint: hint}}
}

// strangers returns a warning about an IngressClass that has the name of our class but belongs to
// another controller, if no class belongs to ours. Ingresses of that class are not compiled.
func (c classes) strangers(objects []inputs.Object[networkingv1.IngressClass]) []diag.Diagnostic {
	var out []diag.Diagnostic
	for _, o := range objects {
		if o.Value.Spec.Controller == c.cfg.ControllerClass {
			return nil
		}
		if o.Ref.Name == c.cfg.IngressClass {
			out = append(out, diag.Diagnostic{
				Severity: diag.Warning, Position: o.Position("spec", "controller"), Object: o.Ref,
				Message: fmt.Sprintf("its Ingresses are not compiled: it belongs to the controller %s, and not to %s", printable.Quoted(o.Value.Spec.Controller), printable.Quoted(c.cfg.ControllerClass)),
				Hint:    "make an IngressClass with spec.controller: " + c.cfg.ControllerClass + ", which cannot be changed in one that there is; or use --controller-class",
			})
		}
	}
	return out
}

// isOurs reports whether the class in the field is ours. The IngressClass decides that. If there is
// no IngressClass at all, as often among manifests, the name decides.
func (c classes) isOurs(name string) bool {
	if controller, ok := c.controllers[name]; ok {
		return controller == c.cfg.ControllerClass
	}
	return len(c.controllers) == 0 && name == c.cfg.IngressClass
}

// isOursByAnnotation reports whether the class in the annotation is ours. That does not need an
// IngressClass.
func (c classes) isOursByAnnotation(name string) bool {
	controller, ok := c.controllers[name]
	return name == c.cfg.IngressClass || (ok && controller == c.cfg.ControllerClass)
}

func (classes) warn(ing ingress, path []any, message, hint string) []diag.Diagnostic {
	return []diag.Diagnostic{{
		Severity: diag.Warning, Position: ing.Position(path...), Object: ing.Ref, Message: message, Hint: hint,
	}}
}

// annotationPath returns the path to an annotation in an object.
func annotationPath(name string) []any {
	return []any{"metadata", "annotations", options.Prefix + name}
}

// parameters are what an IngressClass gives to its Ingresses: the options in a ConfigMap. If the
// options cannot be used, the Ingresses are closed, since an option may protect something.
type parameters struct {
	origin routing.Origin // the IngressClass; the ConfigMap once it is found
	values options.Values
	source inputs.Object[corev1.ConfigMap] // its Value is nil until it is found
	class  inputs.Object[networkingv1.IngressClass]
	found  []diag.Diagnostic
}

// originOf returns the ConfigMap, with the position of the default for an annotation.
func (p *parameters) originOf(annotation string) routing.Origin {
	key := annotation
	if _, ok := p.source.Value.Data[key]; !ok {
		key = annotation[len(options.Prefix):]
	}
	return originOf(p.source, "data", key)
}

func parametersOf(class inputs.Object[networkingv1.IngressClass], configMaps inputs.Lookup[corev1.ConfigMap]) *parameters {
	ref := *class.Value.Spec.Parameters
	closed := &parameters{class: class, origin: originOf(class, "spec", "parameters"), values: options.Values{Closed: true}}
	refuse := func(field, message, hint string) *parameters {
		closed.found = []diag.Diagnostic{{
			Severity: diag.Error, Position: class.Position("spec", "parameters", field), Object: class.Ref, Hint: hint,
			Message: message + "; the Ingresses of the class answer 503",
		}}
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
	name := types.NamespacedName{Namespace: *ref.Namespace, Name: ref.Name}
	source, exists := configMaps.Find(name)
	if !exists {
		why, hint := configMaps.Missing(name)
		return refuse("name", fmt.Sprintf("ConfigMap %s %s", name, why), hint)
	}
	p := &parameters{class: class, source: source}
	annotations := options.Parameters(source.Value.Data)
	var problems []options.Problem
	p.values, problems = options.Read(options.OnClass, annotations)
	p.origin = originOf(source, "data")
	p.found = p.problems(problems)
	return p
}

// problems returns findings about the parameters of a class.
func (p *parameters) problems(problems []options.Problem) []diag.Diagnostic {
	var out []diag.Diagnostic
	for _, x := range problems {
		out = append(out, diag.Diagnostic{
			Severity: x.Severity, Position: p.originOf(x.Annotation).Position, Object: p.origin.Object, Message: x.Message, Hint: x.Hint,
		})
	}
	return out
}

// isLike reports whether other parameters are made from the same objects.
func (p *parameters) isLike(o *parameters) bool {
	if p == nil || o == nil {
		return p == o
	}
	return p.class.Value == o.class.Value && p.source.Value == o.source.Value
}

// askedProblems returns findings about the options of an Ingress, some of which may come from its
// class.
func askedProblems(ing ingress, class *parameters, problems []options.Problem) []diag.Diagnostic {
	var own, inherited []options.Problem
	for _, p := range problems {
		if p.Inherited {
			inherited = append(inherited, p)
		} else {
			own = append(own, p)
		}
	}
	out := options.Diagnostics(ing.Ref, ing.Position, own)
	if class != nil {
		out = append(out, class.problems(inherited)...)
	}
	return out
}

// newestDefault returns the name of our class for Ingresses that name none. If several of our
// classes are the default, it is the newest one, as in the API server.
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
