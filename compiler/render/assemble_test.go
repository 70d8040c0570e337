package render

import (
	"testing"

	"github.com/hapsnap/hapsnap/compiler/policy"
)

// No text becomes a line of its own, whatever a template does with it.
func TestVerbatimTakesLinesOnly(t *testing.T) {
	t.Parallel()
	line, err := policy.NewLine("http-request deny if { path '/a # b' }")
	if err != nil {
		t.Fatal(err)
	}
	if text, err := verbatim(line); err != nil || string(text) != line.Text() {
		t.Errorf("%q, %v", text, err)
	}
	for _, v := range []any{"http-request deny", Text("http-request deny"), policy.Duration("1s"), policy.Line{}, &line, nil, []policy.Line{line}} {
		if text, err := verbatim(v); err == nil {
			t.Errorf("%T %v was written as %q", v, v, text)
		}
	}
	if text, err := checkConfig(line); err == nil {
		t.Errorf("a line was written without verbatim: %q", text)
	}
}
