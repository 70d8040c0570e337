package ingress

import (
	"fmt"
	"slices"
	"strings"

	"github.com/hapsnap/hapsnap/compiler/diag"
	"github.com/hapsnap/hapsnap/compiler/migrate"
	"github.com/hapsnap/hapsnap/compiler/options"
	"github.com/hapsnap/hapsnap/internal/printable"
)

// addForeign reports the annotations of other controllers that an Ingress has and that are
// not obeyed. Whoever changes the class of an Ingress by hand, or has hapsnap take over the
// class of another controller, would else serve what those protected to everybody. So an
// Ingress with one that keeps requests out is closed, until an option of ours says the same,
// or the administrator says that they mean nothing.
func (s source) addForeign(c *claims) {
	if s.scope.ignoreForeign {
		return
	}
	c.foreign, c.closed = s.foreignFindings("the routes of this Ingress answer 503")
	c.foreign = append(c.foreign, s.patterns(c.expressions)...)
}

// foreignCanary returns what is said of an Ingress that is a canary to another controller, and not
// to us; nil of all others. Such a one gets nothing: as an Ingress like others it might take, older or first by
// name, the routes that it was to share, all of their requests and without what protects them.
func (s source) foreignCanary() []diag.Diagnostic {
	ing := s.ingress
	if s.scope.ignoreForeign || len(ing.Value.Annotations) == 0 {
		return nil
	}
	unheeded := migrate.FindUnheeded(ing.Value.Annotations)
	i := slices.IndexFunc(unheeded, func(u migrate.Unheeded) bool { return slices.Contains(u.Instead, options.Prefix+"canary") })
	if i < 0 {
		return nil
	}
	found, _ := s.foreignFindings("this Ingress gets nothing")
	return append(found, s.report(diag.Error, ing.Position("metadata", "annotations", unheeded[i].Annotation),
		fmt.Sprintf("annotation %s of %s makes this Ingress a canary there; here it gets nothing", unheeded[i].Annotation, unheeded[i].Controller),
		"use "+options.Prefix+"canary, as compiler migrate does"))
}

// foreignFindings returns what is said of the annotations of other controllers that are not obeyed,
// and whether one of them protects something; then is what becomes of the Ingress.
func (s source) foreignFindings(then string) (found []diag.Diagnostic, protects bool) {
	ing := s.ingress
	for _, u := range migrate.FindUnheeded(ing.Value.Annotations) {
		if slices.Contains(u.Instead, options.Prefix+"canary") {
			continue // see foreignCanary
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
		found = append(found, s.report(severity, ing.Position("metadata", "annotations", u.Annotation), message, hint))
	}
	return found, protects
}

// patterns reports paths that are regular expressions to another controller, and are
// matched letter by letter here.
func (s source) patterns(expressions bool) []diag.Diagnostic {
	ing := s.ingress
	if expressions || !migrate.HasPatterns(ing.Value.Annotations) {
		return nil
	}
	var found []diag.Diagnostic
	for i, rule := range ing.Value.Spec.Rules {
		if rule.HTTP == nil {
			continue
		}
		for j, p := range rule.HTTP.Paths {
			if strings.ContainsAny(p.Path, `^$()*[]|\+?{}`) {
				found = append(found, s.report(diag.Warning, ing.Position("spec", "rules", i, "http", "paths", j, "path"),
					fmt.Sprintf("path %s is a regular expression of another controller, and is matched as it stands", printable.Quoted(p.Path)),
					"write it as a Prefix or Exact path; rewrite-path may hold an expression"))
			}
		}
	}
	return found
}

// foreignProtection returns an annotation of another controller that protects an Ingress and is
// not obeyed, "" if there is none.
func (s source) foreignProtection() string {
	if s.scope.ignoreForeign {
		return ""
	}
	for _, u := range migrate.FindUnheeded(s.ingress.Value.Annotations) {
		if u.Protects {
			return u.Annotation
		}
	}
	return ""
}

// usesExpressions reports whether the paths of an Ingress that are ImplementationSpecific are
// expressions.
func (s source) usesExpressions() bool {
	class := s.class
	text, own := s.ingress.Value.Annotations[options.Prefix+options.PathType]
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
