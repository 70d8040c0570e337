package routing

import (
	"fmt"
	"maps"
	"slices"

	networkingv1 "k8s.io/api/networking/v1"

	"github.com/hapsnap/hapsnap/compiler/diag"
	"github.com/hapsnap/hapsnap/compiler/inputs"
	"github.com/hapsnap/hapsnap/compiler/options"
)

// mostFindings is how many findings there are on one object. Each becomes an Event and a line of
// the log: those of an object with thousands of mistakes would be in the way of what others are
// told.
const mostFindings = 100

// bounded sorts findings, and leaves out those of an object that has too many, but for the last,
// which says how many more there are.
func bounded(found []diag.Diagnostic) []diag.Diagnostic {
	found = diag.Sort(found)
	count := map[diag.Object]int{}
	for _, d := range found {
		count[d.Object]++
	}
	seen := map[diag.Object]int{}
	more := map[diag.Object]int{} // where in out
	out := found[:0:0]
	for _, d := range found {
		switch seen[d.Object]++; {
		case d.Object == diag.Object{} || count[d.Object] <= mostFindings || seen[d.Object] < mostFindings:
			out = append(out, d)
		case seen[d.Object] == mostFindings:
			more[d.Object] = len(out)
			d.Message = fmt.Sprintf("there are %d more findings on this object like these, which are not listed", count[d.Object]-mostFindings+1)
			d.Hint = "mend those that are"
			out = append(out, d)
		default:
			last := &out[more[d.Object]]
			last.Severity, last.Conflict = max(last.Severity, d.Severity), last.Conflict && d.Conflict
		}
	}
	return out
}

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
