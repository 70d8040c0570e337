package process_test

import (
	"io"
	"strings"
	"testing"

	"github.com/hapsnap/hapsnap/internal/process"
)

// JSON that is read at a terminal does not command it: encoding/json escapes only what is below U+0020.
func TestJSONCommandsNoTerminal(t *testing.T) {
	t.Parallel()
	var f process.OutputFlag
	if err := f.Set("json"); err != nil {
		t.Fatal(err)
	}
	var out strings.Builder
	if err := f.Write(&out, map[string]string{"reason": "\u009b2J\u202e\x7f"}, func(io.Writer) error { return nil }); err != nil {
		t.Fatal(err)
	}
	if want := "{\n  \"reason\": \"\\u009b2J\\u202e\\u007f\"\n}\n"; out.String() != want {
		t.Errorf("printed %q, and not %q", out.String(), want)
	}
}
