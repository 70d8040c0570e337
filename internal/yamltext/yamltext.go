// Package yamltext writes values as YAML that can be read again, whatever characters their strings
// hold.
package yamltext

import (
	"encoding/json"
	"strconv"
	"strings"

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
