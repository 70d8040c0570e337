package routing

import (
	"github.com/hapsnap/hapsnap/compiler/diag"
	"github.com/hapsnap/hapsnap/compiler/options"
)

// asker are the objects whose options a backend carries: an Ingress, and the
// Service that it leads to if that exists. They are of one namespace.
type asker struct {
	ingress ingress
	service *service
	values  []options.Values // of the Ingress, of the Service
}

// report reports an option whose value leads to nothing, at the object whose
// value it is. The routes are closed for it.
func (a asker) report(t *translation, option, message, hint string) {
	object, at := a.ingress.Ref, a.ingress.Position
	if options.Giver(option, a.values...) == 1 && a.service != nil {
		object, at = a.service.Ref, a.service.Position
	}
	t.found = append(t.found, diag.Diagnostic{
		Severity: diag.Error, Position: at(annotationPath(option)...), Object: object, Hint: hint,
		Message: "annotation " + options.Prefix + option + message + "; the routes that it protects answer 503",
	})
}
