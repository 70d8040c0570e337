package render

import (
	"github.com/hapsnap/hapsnap/compiler/routing"
	"github.com/hapsnap/hapsnap/snapshots"
)

// Artifact is what rendering produced.
type Artifact struct {
	Files []snapshots.File // sorted by path
	// Origins says, for each file, where each of its lines came from.
	Origins      map[string][]LineOrigin
	Certificates []snapshots.CertificateRef // sorted by file
}

// LineOrigin is where a line of the output came from.
type LineOrigin struct {
	Template string // as users know the file
	Line     int    // in the template, from 1; 0 for a line that no template wrote
	// Objects are those whose values are on the line, in the order in which
	// they were met.
	Objects []routing.Origin
}

// Origin returns the origin of a line of a file, counted from 1, or the zero
// LineOrigin.
func (a Artifact) Origin(file string, line int) LineOrigin {
	lines := a.Origins[file]
	if line < 1 || line > len(lines) {
		return LineOrigin{}
	}
	return lines[line-1]
}

// Fault is something that keeps an artifact from being published: a value that
// may not be written, a template that cannot be executed, or, found by package
// validate, a line that HAProxy refuses.
type Fault struct {
	Message, Hint string
	Origin        LineOrigin
	// File and Line are the place in the artifact, and Text is the line there;
	// zero if there is none.
	File string
	Line int
	Text string
	// Refused says that a function refused a value: a check, or fail. Then the
	// template works as it is meant to. Value is the value, if it is known.
	Refused bool
	Value   string
	// Field is the field of the object's content that is missing, if that is the
	// fault.
	Field string
	// Namespace is that of the objects to blame, where the line has objects of others
	// too; "" is all of them.
	Namespace string
}
