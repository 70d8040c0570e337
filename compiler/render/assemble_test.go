package render

import (
	"strings"
	"testing"

	"github.com/Masterminds/sprig/v3"

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

// A name that sprig does not know would give a nil function.
func TestHermeticFunctionsExist(t *testing.T) {
	t.Parallel()
	all := sprig.TxtFuncMap()
	for name := range strings.FieldsSeq(hermetic) {
		if all[name] == nil {
			t.Errorf("sprig has no function %s", name)
		}
	}
}

func TestListen(t *testing.T) {
	t.Parallel()
	for address, want := range map[string]Text{
		"*": "*:80", "10.0.0.1": "10.0.0.1:80", "::1": "[::1]:80", "::": "[::]:80 v4v6", "${POD_IP}": `"${POD_IP}:80"`,
	} {
		if got, err := listen(address, 80); got != want || err != nil {
			t.Errorf("listen %s = %s, %v, want %s", address, got, err, want)
		}
	}
}
