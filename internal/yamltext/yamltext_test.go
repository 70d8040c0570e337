package yamltext_test

import (
	"strings"
	"testing"
	"unicode/utf8"

	"sigs.k8s.io/yaml"

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
	text, err := yamltext.Marshal(in)
	if err != nil {
		t.Fatalf("Marshal(%q): %v", s, err)
	}
	var out value
	if err := yaml.UnmarshalStrict(text, &out); err != nil {
		t.Fatalf("%q was written as %q, which cannot be read: %v", s, text, err)
	}
	if out.Text != s || out.Map[s] != s {
		t.Errorf("%q was written as %q, and read as %q", s, text, out)
	}
}
