package routing

import (
	"fmt"

	"github.com/hapsnap/hapsnap/compiler/diag"
	"github.com/hapsnap/hapsnap/compiler/options"
	"github.com/hapsnap/hapsnap/compiler/policy"
)

// SnippetLine is a line of haproxy.cfg that an object brings for its backends.
type SnippetLine struct {
	policy.Line
	Origin Origin
}

// addSnippet gives a backend the lines that its Ingress brings, and reports
// whether it may bring any.
func (t *translation) addSnippet(b *Backend, ing ingress, lines []policy.Line) bool {
	if len(lines) == 0 {
		return true
	}
	at := originOf(ing, annotationPath(options.SnippetOption)...)
	if !t.cfg.Snippets.Has(ing.Ref.Namespace) {
		t.report(diag.Error, ing, at.Position,
			fmt.Sprintf("annotation %s is not allowed in namespace %s; its routes answer 503", options.Prefix+options.SnippetOption, ing.Ref.Namespace),
			"the configuration lists the namespaces that may in snippets.namespaces")
		return false
	}
	for _, line := range lines {
		b.Snippet = append(b.Snippet, SnippetLine{line, at})
	}
	return true
}
