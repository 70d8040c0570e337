package routing

import (
	"fmt"
	"strings"

	"github.com/hapsnap/hapsnap/compiler/diag"
	"github.com/hapsnap/hapsnap/compiler/migrate"
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
	for _, u := range migrate.FindUnheeded(ing.Value.Annotations) {
		severity, message := diag.Warning, fmt.Sprintf("annotation %s of %s is not obeyed", u.Annotation, u.Controller)
		if u.Protects {
			severity, message = diag.Error, message+", and it protects something; the routes of this Ingress answer 503"
			t.asked.shut = true
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
	t.reportPatterns(ing)
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
					fmt.Sprintf("path %s is a regular expression of another controller, and is matched as it stands", shown(p.Path)),
					"write it as a Prefix or Exact path; rewrite-path may hold an expression")
			}
		}
	}
}
