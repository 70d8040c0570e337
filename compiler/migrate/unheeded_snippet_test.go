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
	} {
		alone := FindUnheeded(map[string]string{snippet: text})
		beside := FindUnheeded(map[string]string{snippet: text, ours: "set X-A b"})
		if (len(alone) == 1) != want.alone || (len(beside) == 1) != want.beside || len(alone) == 1 && alone[0].Protects != want.protects {
			t.Errorf("%s: alone %+v, beside %+v", text, alone, beside)
		}
	}
}
