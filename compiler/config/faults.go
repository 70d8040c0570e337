package config

import (
	"slices"
	"strconv"
	"strings"
)

// FieldError is one impossible value: Path is the field's, below spec. An
// element of a list is there by its number, from 0, and one of a map by its key.
type FieldError struct {
	Path          []string
	Message, Hint string
}

// Error returns "spec.tcp[0].port: message".
func (f FieldError) Error() string {
	return joinPath(append([]string{"spec"}, f.Path...)) + ": " + f.Message
}

// joinPath writes a path as people do.
func joinPath(path []string) string {
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

// faults collects what is wrong with the fields below a path.
type faults struct {
	found *[]FieldError
	path  []string
}

// at returns the same collection for the fields below a name.
func (f faults) at(name string) faults {
	return faults{f.found, append(slices.Clone(f.path), name)}
}

// element returns the same collection for an element of a list.
func (f faults) element(i int) faults { return f.at(strconv.Itoa(i)) }

// add adds a fault of the field that was reached with at. An empty message is no
// fault, so that what a check returns can be given as it is.
func (f faults) add(message, hint string) {
	if message != "" {
		*f.found = append(*f.found, FieldError{f.path, message, hint})
	}
}
