package routing

import (
	"maps"
	"slices"

	networkingv1 "k8s.io/api/networking/v1"

	"github.com/hapsnap/hapsnap/compiler/diag"
	"github.com/hapsnap/hapsnap/compiler/inputs"
	"github.com/hapsnap/hapsnap/compiler/options"
)

// Mistakes returns the errors of an Ingress that are there whatever else there is, sorted:
// fields that break a rule of the API, paths that cannot be matched, values of options, and
// what another controller would have protected. It costs next to nothing. An Ingress without
// any may still be at fault beside others, or for HAProxy.
func Mistakes(ing inputs.Object[networkingv1.Ingress], cfg Config) []diag.Diagnostic {
	t := newTranslation(inputs.Inputs{}, cfg.withDefaults())
	found, unusable := validate(ing, t.usesExpressions(ing))
	if _, own := ing.Value.Annotations[options.Prefix+options.PathType]; !own {
		// Its class may say that paths are expressions.
		_, asExpressions := validate(ing, true)
		maps.DeleteFunc(unusable, func(at pathAt, _ diag.Diagnostic) bool { _, wrong := asExpressions[at]; return !wrong })
	}
	t.found = slices.Concat(found, slices.Collect(maps.Values(unusable)))
	_, problems := options.Read(options.OnIngress, ing.Value.Annotations)
	t.reportProblems(ing.Ref, ing.Position, problems)
	t.heedForeign(ing)
	return diag.Sort(slices.DeleteFunc(t.found, func(d diag.Diagnostic) bool { return d.Severity != diag.Error }))
}
