package assert

import (
	"fmt"
	"io"
	"strings"

	"github.com/hapsnap/hapsnap/compiler/diag"
)

// Outcome is what came of a test.
type Outcome struct {
	Name       string    `json:"name"`
	File       string    `json:"file"`
	Line       int       `json:"line"`
	Column     int       `json:"column"`
	Passed     bool      `json:"passed"`
	Assertions int       `json:"assertions"`
	Failures   []Failure `json:"failures,omitempty"`
}

// Failure is an assertion that does not hold, or an error that nobody expected.
type Failure struct {
	File    string `json:"file,omitempty"`
	Line    int    `json:"line,omitempty"`
	Column  int    `json:"column,omitempty"`
	Object  string `json:"object,omitempty"`
	Message string `json:"message"`
	Detail  string `json:"detail,omitempty"`
	Hint    string `json:"hint,omitempty"`
	// Assertion says that an assertion does not hold.
	Assertion bool `json:"assertion"`
}

// failure is a diagnostic as a failure.
func failure(d diag.Diagnostic) Failure {
	return Failure{
		File: d.Position.File, Line: d.Position.Line, Column: d.Position.Column,
		Object: d.Object.String(), Message: d.Message, Hint: d.Hint,
	}
}

// String is the failure as people read it: as a diagnostic, with more below it.
func (f Failure) String() string {
	parts := []string{}
	for _, part := range []string{diag.Position{File: f.File, Line: f.Line, Column: f.Column}.String(), f.Object, f.Message} {
		if part != "" {
			parts = append(parts, part)
		}
	}
	text := strings.Join(parts, ": ")
	for line := range strings.Lines(f.Detail) {
		text += "\n\t" + strings.TrimRight(line, "\n")
	}
	if f.Hint != "" {
		text += "\n\thint: " + f.Hint
	}
	return text
}

// Print prints a line for the test, and what failed.
func (o Outcome) Print(w io.Writer) error {
	of := fmt.Sprintf("%s:%d:%d: %s %s", o.File, o.Line, o.Column, Kind, o.Name)
	if o.Passed {
		_, err := fmt.Fprintf(w, "ok    %s: %s\n", of, count(o.Assertions))
		return err
	}
	failed, errors := 0, 0
	for _, f := range o.Failures {
		if f.Assertion {
			failed++
		} else {
			errors++
		}
	}
	text := fmt.Sprintf("%d of %s failed", failed, count(o.Assertions))
	if errors > 0 {
		text += fmt.Sprintf(", and the compiler reports %d that no assertion expects", errors)
	}
	_, err := fmt.Fprintf(w, "FAIL  %s: %s\n", of, text)
	for _, f := range o.Failures {
		_, err = fmt.Fprintln(w, f)
	}
	return err
}

func count(n int) string {
	if n == 1 {
		return "1 assertion"
	}
	return fmt.Sprint(n, " assertions")
}
