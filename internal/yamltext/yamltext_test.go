package yamltext_test

import (
	"strings"
	"testing"
	"unicode/utf8"

	"sigs.k8s.io/yaml"

	"github.com/hapsnap/hapsnap/internal/printable"
	"github.com/hapsnap/hapsnap/internal/yamltext"
)

type value struct {
	Text string            `json:"text"`
	Map  map[string]string `json:"map,omitempty"`
}

// TestMarshalEveryCharacter writes each character that YAML treats specially, and reads it back.
func TestMarshalEveryCharacter(t *testing.T) {
	for r := rune(0); r <= utf8.MaxRune; r++ {
		if r > 0x3000 && r < 0xd700 || r > 0xe000 && r < 0xf800 || r > 0x10100 && r&0xfff0 != 0xfff0 || !utf8.ValidRune(r) {
			continue // it is like many others
		}
		checkReadBack(t, "a"+string(r)+"b")
	}
}

func FuzzMarshal(f *testing.F) {
	f.Add("a\x7f\u0085: \uffff\n- #")
	f.Fuzz(func(t *testing.T, s string) { checkReadBack(t, strings.ToValidUTF8(s, "?")) })
}

func checkReadBack(t *testing.T, s string) {
	t.Helper()
	in := value{Text: s, Map: map[string]string{s: s}}
	for name, marshal := range map[string]func(any) ([]byte, error){"Marshal": yamltext.Marshal, "Printable": yamltext.Printable} {
		text, err := marshal(in)
		if err != nil {
			t.Fatalf("%s(%q): %v", name, s, err)
		}
		var out value
		if err := yaml.UnmarshalStrict(text, &out); err != nil {
			t.Fatalf("%q was written as %q, which cannot be read: %v", s, text, err)
		}
		if out.Text != s || out.Map[s] != s {
			t.Errorf("%q was written as %q, and read as %q", s, text, out)
		}
		if lines := strings.ReplaceAll(string(text), "\n", ""); name == "Printable" && printable.Text(lines) != lines {
			t.Errorf("%q was written as %q, which is not printable", s, text)
		}
	}
}

// What is written for people keeps its form where it can.
func TestPrintable(t *testing.T) {
	for in, want := range map[string]string{
		"plain: text":                   "text: 'plain: text'\n",
		"two\nlines":                    "text: |-\n  two\n  lines\n",
		"\u202egnp.exe":                 "text: \"\\U0000202egnp.exe\"\n",
		`\x01` + "\ue0000000202e\u2066": "text: \"\\\\x01\\U0000e0000000202e\\U00002066\"\n",
	} {
		if got, err := yamltext.Printable(value{Text: in}); err != nil || string(got) != want {
			t.Errorf("%q is written as %q, want %q: %v", in, got, want, err)
		}
	}
}
