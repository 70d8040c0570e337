package routing

import (
	"cmp"
	"fmt"

	networkingv1 "k8s.io/api/networking/v1"

	"github.com/hapsnap/hapsnap/compiler/diag"
	"github.com/hapsnap/hapsnap/compiler/inputs"
	"github.com/hapsnap/hapsnap/internal/printable"
)

// The annotation that named an Ingress's class before there was a field.
const classAnnotation = "kubernetes.io/ingress.class"

// classes knows which class belongs to whom.
type classes struct {
	cfg         Config
	controllers map[string]string // of the IngressClass objects, by name
	isDefault   bool              // a class of ours is the default
	hasDefault  bool              // any class is
	unnamed     string            // the class of Ingresses of ours that name none
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

// nameOf returns the name of the class that an Ingress of ours has.
func (c classes) nameOf(ing ingress) string {
	field := ""
	if name := ing.Value.Spec.IngressClassName; name != nil {
		field = *name
	}
	return cmp.Or(ing.Value.Annotations[classAnnotation], field, c.unnamed)
}

// claim reports whether an Ingress is ours, and what its author should know.
func (c classes) claim(ing ingress) (bool, []diag.Diagnostic) {
	annotation, field := ing.Value.Annotations[classAnnotation], ""
	if name := ing.Value.Spec.IngressClassName; name != nil {
		field = *name
	}
	switch {
	case annotation != "" && field != "" && field != annotation:
		ours := c.isOursByAnnotation(annotation)
		return ours, c.warnIf(ours || c.isOurs(field), ing, []any{"metadata", "annotations", classAnnotation},
			fmt.Sprintf("annotation %s says %s, and ingressClassName says %s: the annotation wins", classAnnotation, printable.Quoted(annotation), printable.Quoted(field)),
			"remove the annotation")
	case annotation != "":
		return c.isOursByAnnotation(annotation), nil
	case field != "":
		ours := c.isOurs(field)
		_, exists := c.controllers[field]
		return ours, c.warnIf(!ours && !exists && field == c.cfg.IngressClass, ing, []any{"spec", "ingressClassName"},
			fmt.Sprintf("ignored: there is no IngressClass %s", printable.Quoted(field)),
			"create it with spec.controller "+c.cfg.ControllerClass)
	}
	ours := c.isDefault || c.cfg.WatchWithoutClass
	return ours, c.warnIf(!ours && !c.hasDefault, ing, []any{"spec"},
		"ignored: it names no class, and no IngressClass is the default",
		"set ingressClassName: "+c.cfg.IngressClass)
}

// IsOurs reports whether an Ingress is the business of this compiler, as its class
// says.
func IsOurs(ing *networkingv1.Ingress, objects []inputs.Object[networkingv1.IngressClass], cfg Config) bool {
	ours, _ := newClasses(objects, cfg.withDefaults()).claim(ingress{Value: ing})
	return ours
}

// isOurs reports whether the class in the field is ours. Its IngressClass
// decides; manifests without any go by the name alone.
func (c classes) isOurs(name string) bool {
	if controller, ok := c.controllers[name]; ok {
		return controller == c.cfg.ControllerClass
	}
	return len(c.controllers) == 0 && name == c.cfg.IngressClass
}

// isOursByAnnotation reports whether the class in the annotation is ours,
// which needs no IngressClass.
func (c classes) isOursByAnnotation(name string) bool {
	controller, ok := c.controllers[name]
	return name == c.cfg.IngressClass || (ok && controller == c.cfg.ControllerClass)
}

func (c classes) warnIf(condition bool, ing ingress, path []any, message, hint string) []diag.Diagnostic {
	if !condition {
		return nil
	}
	return []diag.Diagnostic{{
		Severity: diag.Warning, Position: ing.Position(path...), Object: ing.Ref, Message: message, Hint: hint,
	}}
}
