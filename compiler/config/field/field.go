// Package field has what checks of a configuration's fields share: an [Error] names the field,
// what is wrong with it and what to do, and [Errors] collects them while the checks walk from
// section to section.
package field

import (
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// Error is one impossible value: Path is the field's, below spec. An
// element of a list is there by its number, from 0, and one of a map by its key.
type Error struct {
	Path          []string
	Message, Hint string
}

// Error returns "spec.tcp[0].port: message".
func (f Error) Error() string {
	return JoinPath(append([]string{"spec"}, f.Path...)) + ": " + f.Message
}

// JoinPath writes a path as people do.
func JoinPath(path []string) string {
	var b strings.Builder
	for i, name := range path {
		if _, err := strconv.ParseUint(name, 10, 0); err == nil {
			b.WriteString("[" + name + "]")
			continue
		}
		if i > 0 {
			b.WriteByte('.')
		}
		b.WriteString(name)
	}
	return b.String()
}

// Errors collects what is wrong with the fields below a path.
type Errors struct {
	found *[]Error
	path  []string
}

// Into returns a collection of what is wrong with any field, which is added to a list.
func Into(found *[]Error) Errors { return Errors{found: found} }

// At returns the same collection for the fields below a name.
func (f Errors) At(name string) Errors {
	return Errors{f.found, append(slices.Clone(f.path), name)}
}

// Any reports whether something is wrong with the field that was reached with At, or with
// one below it.
func (f Errors) Any() bool {
	return slices.ContainsFunc(*f.found, func(e Error) bool {
		return slices.Equal(e.Path[:min(len(e.Path), len(f.path))], f.path)
	})
}

// Element returns the same collection for an element of a list.
func (f Errors) Element(i int) Errors { return f.At(strconv.Itoa(i)) }

// Add adds a fault of the field that was reached with At. An empty message is no
// fault, so that what a check returns can be given as it is.
func (f Errors) Add(message, hint string) {
	if message != "" {
		*f.found = append(*f.found, Error{f.path, message, hint})
	}
}

var environmentForm = regexp.MustCompile(`^\$\{[A-Za-z_][A-Za-z0-9_]*\}$`)

// IsVariable reports whether a value is an environment variable, which HAProxy expands.
func IsVariable(value string) bool { return environmentForm.MatchString(value) }
