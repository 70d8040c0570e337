package compiler

import (
	"regexp"
	"slices"
	"strings"

	"github.com/hapsnap/hapsnap/compiler/admission"
	"github.com/hapsnap/hapsnap/compiler/diag"
)

// lossElsewhere is said, once, where objects of other namespaces would be left out for one.
var lossElsewhere = diag.Diagnostic{
	Severity: diag.Error, Message: "an object of another namespace would lose something to this one",
	Hint: "its author is told what; use a host or a path that nobody else has",
}

// forAsker takes out of a verdict on an object what its author may have no right to know:
// the names of objects of other namespaces, and what is wrong with those. Whoever may create
// an Ingress can ask about any, without a trace. The author of a configuration may know.
func forAsker(object diag.Object, v admission.Verdict) admission.Verdict {
	if (object == diag.Object{}) {
		return v
	}
	v.Faults, v.Warnings = ownWords(object.Namespace, v.Faults), ownWords(object.Namespace, v.Warnings)
	return v
}

// ownWords are findings as somebody of a namespace may read them.
func ownWords(namespace string, found []diag.Diagnostic) []diag.Diagnostic {
	var out []diag.Diagnostic
	for _, d := range found {
		if d.Object.Namespace != namespace && (d.Object != diag.Object{}) {
			d = lossElsewhere
		}
		message, hint := withoutNames(d.Message, namespace), withoutNames(d.Hint, namespace)
		if message != d.Message || hint != d.Hint {
			hint = otherPlaces.ReplaceAllString(hint, "")
		}
		d.Message, d.Hint = message, hint
		if !slices.Contains(out, d) {
			out = append(out, d)
		}
	}
	return out
}

var (
	// objectNames matches the kind, the namespace and the name of an object in a message.
	objectNames = regexp.MustCompile(`\b(Ingress|Service|Secret|ConfigMap|EndpointSlice) ([a-z0-9][a-z0-9-]*)/[a-z0-9][a-z0-9.:-]*`)
	// namespaceNames matches what a message calls a namespace by name.
	namespaceNames = regexp.MustCompile(`\b(to|of|in|have|by|for|from) namespace ([a-z0-9][a-z0-9-]*)`)
	// otherPlaces matches where an older claim stands.
	otherPlaces = regexp.MustCompile(`;? ?the other is at \S+`)
)

// withoutNames takes the names of objects of other namespaces, and of these, out of a text.
// It goes by the form of the text alone: what is there does not matter, or a name that
// somebody guessed would be another text than one that is there.
func withoutNames(text, namespace string) string {
	text = objectNames.ReplaceAllStringFunc(text, func(name string) string {
		m := objectNames.FindStringSubmatch(name)
		if m[2] == namespace {
			return name
		}
		article := "a "
		if strings.ContainsAny(m[1][:1], "AEIOU") {
			article = "an "
		}
		return article + m[1] + " of another namespace"
	})
	return namespaceNames.ReplaceAllStringFunc(text, func(name string) string {
		m := namespaceNames.FindStringSubmatch(name)
		if m[2] == namespace {
			return name
		}
		return m[1] + " another namespace"
	})
}
