package assert_test

import (
	"bytes"
	"cmp"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/hapsnap/hapsnap/compiler/assert"
	"github.com/hapsnap/hapsnap/compiler/validate"
)

// The tests of the example pass, and the documentation shows them.
func TestExample(t *testing.T) {
	t.Parallel()
	check, err := validate.Find(t.Context(), cmp.Or(os.Getenv("HAPROXY"), "haproxy"))
	if err != nil {
		t.Fatal(err)
	}
	tests, found, err := assert.Find("../../examples/shop")
	if err != nil || len(found) > 0 || len(tests) < 2 {
		t.Fatal(tests, found, err)
	}
	doc, err := os.ReadFile("../../docs/how-to/testing.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, test := range tests {
		o, err := assert.Runner{Check: check, Now: time.Now()}.Run(t.Context(), test)
		if err != nil || !o.Passed {
			var out strings.Builder
			_ = o.Print(&out)
			t.Error(err, out.String())
		}
		text, err := os.ReadFile(test.File)
		if err != nil {
			t.Fatal(err)
		}
		if !bytes.Contains(doc, text) {
			t.Errorf("docs/how-to/testing.md does not show %s", test.File)
		}
	}
}
