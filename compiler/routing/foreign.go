package routing

import (
	"fmt"
	"slices"
	"strings"

	"github.com/hapsnap/hapsnap/compiler/diag"
	"github.com/hapsnap/hapsnap/compiler/migrate"
	"github.com/hapsnap/hapsnap/compiler/options"
	"github.com/hapsnap/hapsnap/internal/printable"
)

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
