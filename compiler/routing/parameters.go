package routing

import (
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"

	"github.com/hapsnap/hapsnap/compiler/diag"
	"github.com/hapsnap/hapsnap/compiler/inputs"
	"github.com/hapsnap/hapsnap/compiler/options"
	"github.com/hapsnap/hapsnap/internal/printable"
	"github.com/hapsnap/hapsnap/snapshots"
)

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
