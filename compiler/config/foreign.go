package config

import (
	"fmt"

	"github.com/hapsnap/hapsnap/compiler/config/field"
)

// ForeignAnnotations says what becomes of annotations of other controllers that are not
// obeyed.
type ForeignAnnotations string

// The answers.
const (
	// CloseForeign reports each of them, and closes the routes of an Ingress with one that
	// protects something.
	CloseForeign ForeignAnnotations = "close"
	// IgnoreForeign says nothing of them.
	IgnoreForeign ForeignAnnotations = "ignore"
)

func (a ForeignAnnotations) check(f field.Errors) {
	if a != CloseForeign && a != IgnoreForeign {
		f.Add(fmt.Sprintf("%q is neither close nor ignore", string(a)), "use close or ignore")
	}
}
