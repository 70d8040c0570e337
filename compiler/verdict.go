package compiler

import (
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"

	"github.com/hapsnap/hapsnap/compiler/admission"
	"github.com/hapsnap/hapsnap/compiler/diag"
)

// verdict says what the compile of a review means for the object that it was
// about; the zero Object is the configuration. What was found before is nobody's
// fault now, unless it was found on the object itself: whoever changes it is to
// mend it. The error says that there is no verdict.
func verdict(object diag.Object, before compiled, found []diag.Diagnostic, err error) (admission.Verdict, error) {
	switch {
	case errors.Is(err, ErrTemplates), errors.Is(err, ErrGaveUp):
		if before.err != nil {
			return admission.Verdict{}, fmt.Errorf("nothing can be compiled at the moment: %w", before.err)
		}
		// Who writes an Ingress is told nothing of the objects of others, nor of the templates.
		known := errorsOf(before.found)
		faults := []diag.Diagnostic{{Severity: diag.Error, Message: "nothing could be compiled with this: " + err.Error()}}
		for _, d := range found {
			if d.Severity == diag.Error && !known[d] && (object == diag.Object{} || d.Object == object) {
				faults = append(faults, d)
			}
		}
		return admission.Verdict{Faults: faults}, nil
	case err != nil:
		return admission.Verdict{}, err
	}
	return ofObject(object, found, errorsOf(before.found)), nil
}

// ofObject says what findings mean for an object, where some errors were known before.
func ofObject(object diag.Object, found []diag.Diagnostic, known map[diag.Diagnostic]bool) admission.Verdict {
	var v admission.Verdict
	for _, d := range found {
		isError := d.Severity == diag.Error
		switch {
		case object != diag.Object{} && d.Object == object:
			if d.Position.File != "" {
				continue // it was said of the one in a file, which this one replaces
			}
			d.Object = diag.Object{} // who reads it knows
			if isError && !d.Conflict {
				v.Faults = append(v.Faults, d)
			} else {
				v.Warnings = append(v.Warnings, d)
			}
		case isError && !known[d]:
			v.Warnings = append(v.Warnings, d) // another object is harmed
		}
	}
	if len(v.Faults) > 0 {
		v.Warnings = nil // nothing comes of them
	}
	return forAsker(object, v)
}

// errorsOf returns the errors among what was found.
func errorsOf(found []diag.Diagnostic) map[diag.Diagnostic]bool {
	out := map[diag.Diagnostic]bool{}
	for _, d := range found {
		if d.Severity == diag.Error {
			out[d] = true
		}
	}
	return out
}

// lossElsewhere is the one message if objects of other namespaces would be left out because
// of this one.
var lossElsewhere = diag.Diagnostic{
	Severity: diag.Error, Message: "an object of another namespace would lose something to this one",
	Hint: "its author gets a message that says what; use a host or a path that nobody else has",
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
	objectNames = regexp.MustCompile(`\b(Ingress|Service|Secret|ConfigMap|EndpointSlice|Gateway|ListenerSet|[A-Z]+Route|BackendTLSPolicy) ([a-z0-9][a-z0-9-]*)/[a-z0-9][a-z0-9.:-]*`)
	// namespaceNames matches what a message calls a namespace by name.
	namespaceNames = regexp.MustCompile(`\b(to|of|in|have|by|for|from) (?:the )?namespace ([a-z0-9][a-z0-9-]*)`)
	// otherPlaces matches where an older claim stands.
	otherPlaces = regexp.MustCompile(`;? ?the other is at \S+`)
)

// withoutNames removes the names of objects of other namespaces, and of these namespaces,
// from a text. It looks only at the form of the text. If it depended on what exists, a name
// that somebody guessed would give another text if it exists.
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
