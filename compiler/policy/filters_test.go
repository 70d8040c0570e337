package policy

import (
	"strings"
	"testing"
)

func TestNewLine(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		"http-request deny":                    "",
		"  no option httpclose\t":              "",
		"http-request set-header X 'a # b'":    "",
		"acl x path -m beg /\u00e9":            "",
		"":                                     "begins with no keyword",
		"# text":                               "begins with no keyword",
		"#hapsnap servers shop/web":            "begins with no keyword",
		".if true":                             "begins with no keyword",
		"backend x":                            "begins a section",
		"healthcheck x":                        "begins a section", // HAProxy 3.4
		"'backend' x":                          "begins with no keyword",
		`back\end x`:                           "begins with no keyword",
		`"global"`:                             "begins with no keyword",
		"no backend x":                         "begins a section",
		"server s 10.0.0.1:80":                 "is written by the templates",
		"default server s 10.0.0.1:80":         "is written by the templates",
		"stats admin if TRUE":                  "reaches beyond the backend",
		"http-request deny\nserver s 10.0.0.1": "unprintable character U+000A",
		"http-request deny\r":                  "unprintable character U+000D",
		"http-request\tdeny":                   "unprintable character U+0009",
		"http-request deny\u2028backend x":     "unprintable character U+2028",
		"http-request deny\x00":                "unprintable character U+0000",
		"http-request deny\xff":                "", // annotations with it are refused when they are read
		`http-request deny \`:                  "ends in a backslash",
		"acl " + strings.Repeat("x", maxLine):  "bytes; a line may have",
	} {
		line, err := NewLine(text)
		switch {
		case want == "" && (err != nil || line.Text() != strings.Trim(text, " \t")):
			t.Errorf("%q: %q, %v", text, line.Text(), err)
		case want != "" && (err == nil || !strings.Contains(err.Error(), want) || line != Line{}):
			t.Errorf("%q: %q, %v, want %s", text, line.Text(), err, want)
		}
	}
}
