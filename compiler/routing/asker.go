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
