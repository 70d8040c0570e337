// Package field collects the errors of a configuration's fields. An [Error] names the field, what is wrong
// with it, and what to do about it. [Errors] collects them while the checks walk from section to section.
// [Network] parses addresses and networks for several sections.
package field

import (
	"fmt"
	"net/netip"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// Error is one impossible value. Path is the field's path below spec. It names an element
// of a list by its index, from 0, and one of a map by its key.
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

// Into returns a collection for all fields, which appends to a list.
func Into(found *[]Error) Errors { return Errors{found: found} }

// At returns the collection for the fields below a name.
func (f Errors) At(name string) Errors {
	return Errors{f.found, append(slices.Clone(f.path), name)}
}

// Any reports whether an error was added for this field or for one below it.
func (f Errors) Any() bool {
	return slices.ContainsFunc(*f.found, func(e Error) bool {
		return slices.Equal(e.Path[:min(len(e.Path), len(f.path))], f.path)
	})
}

// Element returns the collection for an element of a list.
func (f Errors) Element(i int) Errors { return f.At(strconv.Itoa(i)) }

// Add adds an error of this field. It ignores an empty message, so that callers can pass
// the result of a check.
func (f Errors) Add(message, hint string) {
	if message != "" {
		*f.found = append(*f.found, Error{f.path, message, hint})
	}
}

var environmentForm = regexp.MustCompile(`^\$\{[A-Za-z_][A-Za-z0-9_]*\}$`)

// IsVariable reports whether a value is an environment variable, which HAProxy expands.
func IsVariable(value string) bool { return environmentForm.MatchString(value) }

// Networks returns the networks of a list that is valid.
func Networks(texts []string) []netip.Prefix {
	var out []netip.Prefix
	for _, text := range texts {
		if network, ok := Network(text); ok {
			out = append(out, network)
		}
	}
	return out
}

// Network reads a CIDR without bits beyond its length, or an address.
func Network(text string) (netip.Prefix, bool) {
	if a, err := netip.ParseAddr(text); err == nil {
		return netip.PrefixFrom(a, a.BitLen()), a.Zone() == ""
	}
	p, err := netip.ParsePrefix(text)
	return p, err == nil && p.Masked() == p
}

// OptionalDuration is a time such as 30s, or nothing.
type OptionalDuration string

// portRange reads "80" or "9000-9099".
func portRange(text string) (first, last int, err error) {
	from, to, both := strings.Cut(text, "-")
	if !both {
		to = from
	}
	first, err = strconv.Atoi(from)
	if err == nil {
		last, err = strconv.Atoi(to)
	}
	if err != nil || first < 1 || last > 65535 || first > last {
		return 0, 0, fmt.Errorf("%q is neither a port nor a range of ports", text)
	}
	return first, last, nil
}

// HasPort reports whether a port is in a list of ports and ranges.
func HasPort(list []string, port int) bool {
	return slices.ContainsFunc(list, func(text string) bool {
		first, last, err := portRange(text)
		return err == nil && first <= port && port <= last
	})
}

// CheckPorts checks a list of ports and ranges.
func CheckPorts(f Errors, list []string) {
	for i, text := range list {
		if _, _, err := portRange(text); err != nil {
			f.Element(i).Add(err.Error(), "use such as 5432 or 9000-9099")
		}
	}
}
