package printable_test

import (
	"encoding/json"
	"errors"
	"reflect"
	"strconv"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/hapsnap/hapsnap/internal/printable"
)

func TestText(t *testing.T) {
	for in, want := range map[string]string{
		"":                      "",
		`a "quoted" \ word`:     `a "quoted" \ word`,
		"café ✓":                "café ✓",
		"a\nb\tc":               `a\nb\tc`,
		"\x1b[2J":               `\x1b[2J`,
		"a\x7fb":                `a\x7fb`,
		"\u0085\u009b31m":       `\u0085\u009b31m`,
		"\u202egnp.exe":         `\u202egnp.exe`,
		"\ufffe\uffff":          `\ufffe\uffff`,
		"\xff\xc3":              `\xff\xc3`,
		"\ufffd is a character": "\ufffd is a character",
		"it's":                  "it's",
	} {
		if got := printable.Text(in); got != want {
			t.Errorf("Text(%q) = %q, want %q", in, got, want)
		}
	}
}

func FuzzText(f *testing.F) {
	f.Add("a\x7f\xff\u202e")
	f.Fuzz(func(t *testing.T, s string) {
		got := printable.Text(s)
		if !utf8.ValidString(got) {
			t.Errorf("Text(%q) = %q is no UTF-8", s, got)
		}
		for _, r := range got {
			if !strconv.IsPrint(r) {
				t.Errorf("Text(%q) = %q holds %q", s, got, r)
			}
		}
		if again := printable.Text(got); again != got {
			t.Errorf("Text of %q is %q: it is escaped twice", got, again)
		}
	})
}

func TestQuoted(t *testing.T) {
	t.Parallel()
	for in, want := range map[string]string{
		"":                        `""`,
		"a\"b\n":                  `"a\"b\n"`,
		strings.Repeat("a", 60):   `"` + strings.Repeat("a", 60) + `"`,
		strings.Repeat("é", 61):   `"` + strings.Repeat("é", 60) + `…"`,
		strings.Repeat("🙂", 4000): `"` + strings.Repeat("🙂", 60) + `…"`,
	} {
		if got := printable.Quoted(in); got != want {
			t.Errorf("%.80q: %s, want %s", in, got, want)
		}
	}
}

func TestJSON(t *testing.T) {
	for in, want := range map[string]string{
		"{\n  \"a\": \"café ✓\"\n}\n":     "{\n  \"a\": \"café ✓\"\n}\n",
		"[\"\u009b31m \x7f \u202e é\"]\n": `["\u009b31m \u007f \u202e é"]` + "\n",
		"[\"\U000e0001x\"]":               `["\udb40\udc01x"]`,
		`["\u001b"]`:                      `["\u001b"]`,
	} {
		got := string(printable.JSON([]byte(in)))
		var before, after any
		if err := errors.Join(json.Unmarshal([]byte(in), &before), json.Unmarshal([]byte(got), &after)); got != want || err != nil || !reflect.DeepEqual(before, after) {
			t.Errorf("JSON(%q) = %q, want %q, %v", in, got, want, err)
		}
	}
}
