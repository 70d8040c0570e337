package process_test

import (
	"io"
	"strings"
	"testing"

	"github.com/hapsnap/hapsnap/internal/process"
)

// JSON and YAML that are read at a terminal do not command it, nor reverse text: encoding/json escapes only what is below
// U+0020, and writers of YAML what YAML refuses.
func TestOutputCommandsNoTerminal(t *testing.T) {
	t.Parallel()
	for form, want := range map[string]string{
		"json": "{\n  \"reason\": \"\\u009b2J\\u202e\\u007f\"\n}\n",
		"yaml": "reason: \"\\U0000009b2J\\U0000202e\\U0000007f\"\n",
	} {
		var out strings.Builder
		var f process.OutputFlag
		if err := f.Set(form); err != nil {
			t.Fatal(err)
		}
		if err := f.Write(&out, map[string]string{"reason": "\u009b2J\u202e\x7f"}, func(io.Writer) error { return nil }); err != nil {
			t.Fatal(err)
		}
		if out.String() != want {
			t.Errorf("%q, want %q", out.String(), want)
		}
	}
}
