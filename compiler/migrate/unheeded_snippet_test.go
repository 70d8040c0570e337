package migrate

import (
	"testing"

	"github.com/hapsnap/hapsnap/compiler/options"
)

// Options for headers stand for a snippet that edits headers, and never for one that keeps
// requests out.
func TestUnheededSnippet(t *testing.T) {
	const snippet, ours = "nginx.ingress.kubernetes.io/configuration-snippet", options.Prefix + "response-headers"
	for text, want := range map[string]struct{ alone, beside, protects bool }{
		`more_set_headers "X-Auth: deny";`:     {alone: true},
		`deny all; more_set_headers "X-A: b";`: {alone: true, beside: true, protects: true},
		`rewrite ^/a /b;`:                      {alone: true},
		`return 403;`:                          {alone: true, beside: true, protects: true},
	} {
		alone := FindUnheeded(map[string]string{snippet: text})
		beside := FindUnheeded(map[string]string{snippet: text, ours: "set X-A b"})
		if (len(alone) == 1) != want.alone || (len(beside) == 1) != want.beside || len(alone) == 1 && alone[0].Protects != want.protects {
			t.Errorf("%s: alone %+v, beside %+v", text, alone, beside)
		}
	}
}

// What stands for a part of what was asked for does not stand for a part that keeps requests out.
func TestUnheededParts(t *testing.T) {
	const theirs = "nginx.ingress.kubernetes.io/"
	for name, c := range map[string]struct {
		annotation, value string
		ours              []string // beside it
		protects          bool     // and is not obeyed
	}{
		"name of clients":                {"auth-tls-match-cn", "CN=a", []string{"client-ca-secret"}, true},
		"name of clients, authority":     {"auth-tls-match-cn", "CN=a", []string{"client-match-cn"}, true},
		"name of clients, obeyed":        {"auth-tls-match-cn", "CN=a", []string{"client-ca-secret", "client-match-cn"}, false},
		"snippet refuses all":            {"server-snippet", "deny all;", []string{"allow-list"}, true},
		"snippet refuses all, obeyed":    {"server-snippet", "deny all;", []string{"deny-list"}, false},
		"snippet admits some":            {"configuration-snippet", "allow 10.0.0.0/8; deny all;", []string{"deny-list", "response-headers"}, true},
		"snippet admits some, obeyed":    {"configuration-snippet", "allow 10.0.0.0/8; deny all;", []string{"allow-list"}, false},
		"snippet is more, and says less": {"configuration-snippet", "if ($x) { deny all; }", []string{"allow-list", "deny-list"}, true},
		"header of a list":               {"", "", []string{"allow-list"}, true},
		"one way of several":             {"satisfy", "any", nil, true},
	} {
		annotations := map[string]string{theirs + c.annotation: c.value}
		if c.annotation == "" {
			annotations = map[string]string{"haproxy-ingress.github.io/allowlist-source-header": "X-Real-IP", "haproxy-ingress.github.io/allowlist-source-range": "10.0.0.0/8"}
		}
		for _, option := range c.ours {
			annotations[options.Prefix+option] = "x"
		}
		found := FindUnheeded(annotations)
		if protects := len(found) == 1 && found[0].Protects; protects != c.protects || !c.protects && len(found) > 0 {
			t.Errorf("%s: %+v", name, found)
		}
	}
}

func TestCommonName(t *testing.T) {
	for value, want := range map[string]string{
		"CN=alice": "alice.*", "^CN=alice": "", "CN=alice$": "", "CN=(a|b)": "(a|b).*", "CN=.*": ".*", "CN=a.*[.]example": "a.*[.]example.*",
		"alice": "", "CN=": "", "CN=a|b": "", "CN=a|CN=b": "", "CN=a,O=b": "", `CN=a\.b`: `a\.b.*`, `CN=a\d`: "", `CN=a\`: "", "O=b,CN=a": "", "CN=a^b": "", "CN=a$b": "", "CN=a/b": "",
	} {
		if got, err := commonName(value); got != want || (err == nil) != (want != "") {
			t.Errorf("%s: %q %v, want %q", value, got, err, want)
		}
	}
}
