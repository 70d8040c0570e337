// Package diag holds what the compiler says to its users: diagnostics with a
// position, the object, what is wrong and what to do about it.
//
// The text form is that of Go's own compiler, so that editors link it:
//
//	manifests/web.yaml:7:25: Ingress shop/web: what is wrong
//		hint: what to do about it
//
// An object of a cluster has fields instead:
//
//	Ingress shop/web: spec.rules[0].host: what is wrong
package diag

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/hapsnap/hapsnap/internal/printable"
)

// Position is a place in a file. For an object that is in no file, such as one from a cluster, it is a field of the
// object. The zero Position is nowhere. Line and Column count from 1; 0 is unknown.
type Position struct {
	File         string
	Line, Column int
	Field        string // such as spec.rules[0].host, if there is no File
}

// String returns "file:line:col" without the parts that are unknown, or the
// field.
func (p Position) String() string {
	switch {
	case p.File == "":
		return p.Field
	case p.Line == 0:
		return p.File
	case p.Column == 0:
		return fmt.Sprintf("%s:%d", p.File, p.Line)
	}
	return fmt.Sprintf("%s:%d:%d", p.File, p.Line, p.Column)
}

// Compare orders positions by file, line, column and field.
func (p Position) Compare(o Position) int {
	return cmp.Or(cmp.Compare(p.File, o.File), cmp.Compare(p.Line, o.Line), cmp.Compare(p.Column, o.Column), cmp.Compare(p.Field, o.Field))
}

// Object names an object. Namespace is empty for cluster-scoped ones; the
// zero Object is none. APIVersion is empty for the kinds that the compiler reads
// without being told; it tells kinds of one name apart, and is not shown.
type Object struct {
	Kind, Namespace, Name string
	APIVersion            string
}

// String returns "Kind namespace/name", on one line whatever the names hold.
func (o Object) String() string {
	switch {
	case o == Object{}:
		return ""
	case o.Namespace == "":
		return printable.Text(o.Kind + " " + o.Name)
	}
	return printable.Text(o.Kind + " " + o.Namespace + "/" + o.Name)
}

// Compare orders objects by kind, namespace, name and apiVersion.
func (o Object) Compare(p Object) int {
	return cmp.Or(cmp.Compare(o.Kind, p.Kind), cmp.Compare(o.Namespace, p.Namespace), cmp.Compare(o.Name, p.Name), cmp.Compare(o.APIVersion, p.APIVersion))
}

// Severity says what a diagnostic means for its object.
type Severity int

// The severities. An Error means that the object, or the part of it that the
// message names, was left out; a Warning, that it was not.
const (
	Warning Severity = iota
	Error
)

// String returns "warning" or "error".
func (s Severity) String() string {
	if s == Error {
		return "error"
	}
	return "warning"
}

// Diagnostic is one finding.
type Diagnostic struct {
	Severity Severity
	Position Position
	Object   Object
	Message  string // what is wrong, without the position and the object
	Hint     string // what to do about it; may be empty
	// Conflict says that nothing is wrong with the object itself: an older object has what it claims.
	Conflict bool
}

// String returns the diagnostic as a user reads it, without a final newline. A warning says so after the position. Without
// a file, the field follows the object.
func (d Diagnostic) String() string {
	var parts []string
	if d.Position.File != "" {
		parts = append(parts, printable.Text(d.Position.String()))
	}
	if d.Severity == Warning {
		parts = append(parts, "warning")
	}
	if o := d.Object.String(); o != "" {
		parts = append(parts, o)
	}
	if d.Position.File == "" && d.Position.Field != "" {
		parts = append(parts, printable.Text(d.Position.Field))
	}
	text := strings.Join(append(parts, printable.Text(d.Message)), ": ")
	if d.Hint != "" {
		text += "\n\thint: " + printable.Text(d.Hint)
	}
	return text
}

// Sort orders diagnostics by position, object and message, and drops repeats. It makes
// their texts printable (package printable), which objects have a part in: from here they
// go to terminals, logs, Events and manifests.
func Sort(ds []Diagnostic) []Diagnostic {
	for i, d := range ds {
		ds[i].Message, ds[i].Hint, ds[i].Position.Field = printable.Text(d.Message), printable.Text(d.Hint), printable.Text(d.Position.Field)
	}
	slices.SortStableFunc(ds, func(a, b Diagnostic) int {
		return cmp.Or(a.Position.Compare(b.Position), a.Object.Compare(b.Object),
			cmp.Compare(a.Message, b.Message), cmp.Compare(b.Severity, a.Severity))
	})
	return slices.Compact(ds)
}

// HasErrors reports whether any diagnostic is an [Error].
func HasErrors(ds []Diagnostic) bool {
	return slices.ContainsFunc(ds, func(d Diagnostic) bool { return d.Severity == Error })
}
