// Package yamltext writes values as YAML that can be read again, whatever characters their strings
// hold.
package yamltext

import (
	"encoding/json"
	"fmt"
	"regexp"
	"strconv"
	"strings"
	"unicode/utf8"

	"sigs.k8s.io/yaml"
)

// Marshal returns v as YAML, by its JSON form. The same value always gives the same bytes.
//
// A YAML stream may hold U+007F to U+009F, U+FFFE and U+FFFF as escapes only (YAML 1.2, section 5.1,
// "c-printable"). [yaml.Marshal] hands the JSON form, which holds them unescaped, to a parser of YAML,
// and fails for any of them: one such character, anywhere in a value, would keep the whole value from
// being written. Marshal escapes them first.
func Marshal(v any) ([]byte, error) {
	text, err := json.Marshal(v)
	if err != nil {
		return nil, err
	}
	return yaml.JSONToYAML([]byte(escape(string(text))))
}

// escape writes the characters that YAML refuses as escapes of JSON. In JSON they occur
// in strings only.
func escape(text string) string {
	refused := func(r rune) bool { return r >= 0x7f && r <= 0x9f || r == 0xfffe || r == 0xffff }
	if strings.IndexFunc(text, refused) < 0 {
		return text
	}
	var b strings.Builder
	for _, r := range text {
		if refused(r) {
			b.WriteString(`\u` + strconv.FormatInt(int64(r)|0x10000, 16)[1:])
			continue
		}
		b.WriteRune(r)
	}
	return b.String()
}

// Printable is Marshal for people: each character that [printable.Text] would escape, such as one that reverses the text
// that is shown, is an escape of YAML. It reads back as the same value.
func Printable(v any) ([]byte, error) {
	text, err := json.Marshal(v)
	if err != nil {
		return nil, err
	}
	// The writer of YAML only escapes what YAML refuses, and chooses quotes for that. So each such character is written
	// as a control character, which it escapes, with a mark that is nowhere else and the number of the character.
	mark := '\ue000'
	for strings.ContainsRune(string(text), mark) {
		mark++
	}
	var b strings.Builder
	escape := func(r rune) { fmt.Fprintf(&b, `\u0001%c%08x`, mark, r) }
	for rest := string(text); rest != ""; {
		r, size := utf8.DecodeRuneInString(rest)
		switch {
		case strings.HasPrefix(rest, `\u2028`), strings.HasPrefix(rest, `\u2029`): // as encoding/json writes two of them
			size = len(`\u2028`)
			escape('\u2028' + rune(rest[size-1]-'8'))
		case r == '\\':
			size = 2
			b.WriteString(rest[:size])
		case r == mark || strconv.IsPrint(r) || r < 0x20:
			b.WriteRune(r)
		default:
			escape(r)
		}
		rest = rest[size:]
	}
	if b.Len() == len(text) {
		return yaml.JSONToYAML(text)
	}
	written, err := yaml.JSONToYAML([]byte(b.String()))
	if err != nil {
		return nil, err
	}
	return regexp.MustCompile(fmt.Sprintf(`\\x01%c([0-9a-f]{8})`, mark)).ReplaceAll(written, []byte(`\U$1`)), nil
}
