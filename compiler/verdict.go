package compiler

import (
	"errors"
	"fmt"

	"github.com/hapsnap/hapsnap/compiler/admission"
	"github.com/hapsnap/hapsnap/compiler/config/field"
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
			return admission.Verdict{}, fmt.Errorf("nothing can be compiled as it is: %w", before.err)
		}
		return admission.Verdict{Faults: harm(object, before, found, err)}, nil
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
			v.Warnings = append(v.Warnings, d) // another one suffers
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

// harm says why nothing could be compiled any more. Who writes an Ingress learns nothing
// of the objects of others, nor of the templates.
func harm(object diag.Object, before compiled, found []diag.Diagnostic, err error) []diag.Diagnostic {
	known := errorsOf(before.found)
	faults := []diag.Diagnostic{{Severity: diag.Error, Message: "nothing could be compiled with this: " + err.Error()}}
	for _, d := range found {
		if d.Severity == diag.Error && !known[d] && (object == diag.Object{} || d.Object == object) {
			faults = append(faults, d)
		}
	}
	return faults
}

// fieldFaults are faults of fields of the configuration.
func fieldFaults(faults []field.Error) []diag.Diagnostic {
	var out []diag.Diagnostic
	for _, f := range faults {
		out = append(out, diag.Diagnostic{Severity: diag.Error, Message: f.Error(), Hint: f.Hint})
	}
	return out
}
