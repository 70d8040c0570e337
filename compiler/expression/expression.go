// Package expression decides which regular expressions the authors of objects may write.
//
// HAProxy compiles and runs them, with PCRE, for everybody's requests. So PCRE and Go must read an
// expression alike, since HAProxy reports only one refused expression per run, and it must cost little
// on any input. PCRE goes back and tries again where several ways are possible: an expression with two
// such places can take 80 ms of a worker's only thread for one path of 8 KiB.
//
// [Parse] therefore accepts a part of the language: literals, classes, groups, alternatives,
// repetitions, ^, $, \b and (?i). It refuses everything else with a place and a hint. The bound of the
// cost is computed from the expression, see cost.go.
//
// # Decisions
//
// Regular expressions of tenants are judged before HAProxy sees them: HAProxy stops at an expression
// that PCRE refuses, and runs any other for as long as it takes, for everybody's requests.
package expression

import (
	"fmt"
	"regexp/syntax"
	"strings"
)

const (
	// maxLength is the longest expression, in bytes.
	maxLength = 1024
	// maxGroups is how many groups HAProxy can refer to: \1 to \9.
	maxGroups = 9
	// maxNested is how deep repetitions may be nested. The cost of each is computed several times for
	// each of those around it.
	maxNested = 3
)

// Expression is a regular expression that HAProxy may run.
type Expression struct {
	// Groups is how many groups in parentheses can be referred to.
	Groups int
	// Steps is about the most steps that a match takes on a text of 8 KiB by a matcher that goes back.
	// A step is a comparison of one character or a choice.
	Steps int
}

// Error is why an expression is refused.
type Error struct {
	Message, Hint string
}

func (e *Error) Error() string { return e.Message }

func refuse(hint, format string, args ...any) error {
	return &Error{Message: fmt.Sprintf(format, args...), Hint: hint}
}

// Parse reads an expression. The error is an [*Error].
func Parse(text string) (Expression, error) {
	if len(text) > maxLength {
		return Expression{}, refuse("use a shorter one", "is longer than %d bytes", maxLength)
	}
	// Go's own error is the best one for an expression that nobody could read.
	if _, err := syntax.Parse(text, syntax.Perl); err != nil {
		return Expression{}, refuse("", "is not a regular expression: %s", strings.TrimPrefix(err.Error(), "error parsing regexp: "))
	}
	tree, groups, err := parse(text)
	if err != nil {
		return Expression{}, err
	}
	if groups > maxGroups {
		return Expression{}, refuse("write (?:…) for groups that no target refers to", "has %d groups; only %d can be referred to", groups, maxGroups)
	}
	if n := nested(tree); n > maxNested {
		return Expression{}, refuse("", "has %d repetitions within one another; %d are allowed", n, maxNested)
	}
	steps, err := cost(tree)
	if err != nil {
		return Expression{}, err
	}
	return Expression{Groups: groups, Steps: steps}, nil
}

// nested returns how many repetitions stand within one another.
func nested(n node) int {
	most := 0
	for _, part := range n.parts {
		most = max(most, nested(part))
	}
	if n.kind == repeat {
		most++
	}
	return most
}
