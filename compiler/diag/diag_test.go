package diag_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/hapsnap/hapsnap/compiler/diag"
)

var (
	web = diag.Object{Kind: "Ingress", Namespace: "shop", Name: "web"}
	at  = diag.Position{File: "manifests/web.yaml", Line: 7, Column: 25}
)

func TestDiagnosticString(t *testing.T) {
	for _, c := range []struct {
		name string
		in   diag.Diagnostic
		want string
	}{
		{
			"everything",
			diag.Diagnostic{Severity: diag.Error, Position: at, Object: web, Message: "what is wrong", Hint: "what to do"},
			"manifests/web.yaml:7:25: Ingress shop/web: what is wrong\n\thint: what to do",
		},
		{"warning", diag.Diagnostic{Position: at, Message: "careful"}, "manifests/web.yaml:7:25: warning: careful"},
		{
			"a field of an object of a cluster",
			diag.Diagnostic{Position: diag.Position{Field: "spec.rules[0].host"}, Object: web, Message: "careful"},
			"warning: Ingress shop/web: spec.rules[0].host: careful",
		},
		{"from a cluster", diag.Diagnostic{Severity: diag.Error, Object: web, Message: "no"}, "Ingress shop/web: no"},
		{
			"cluster-scoped",
			diag.Diagnostic{Severity: diag.Error, Object: diag.Object{Kind: "IngressClass", Name: "a"}, Message: "no"},
			"IngressClass a: no",
		},
		{
			"stays on its line",
			diag.Diagnostic{Severity: diag.Error, Object: diag.Object{Kind: "Secret", Name: "a\nb"}, Message: "\x1b[31m", Hint: "\u2028"},
			`Secret a\nb: \x1b[31m` + "\n\thint: " + `\u2028`,
		},
	} {
		if got := c.in.String(); got != c.want {
			t.Errorf("%s:\n got %q\nwant %q", c.name, got, c.want)
		}
	}
}

func TestPositionString(t *testing.T) {
	for want, p := range map[string]diag.Position{
		"":        {},
		"a":       {File: "a"},
		"a:1":     {File: "a", Line: 1},
		"a:1:2":   {File: "a", Line: 1, Column: 2},
		"a:10:20": {File: "a", Line: 10, Column: 20},
		"spec":    {Field: "spec"},
	} {
		if got := p.String(); got != want {
			t.Errorf("%#v: got %q, want %q", p, got, want)
		}
	}
}

func TestSortOrdersAndDropsRepeats(t *testing.T) {
	a := diag.Diagnostic{Position: diag.Position{File: "a", Line: 10}, Message: "x"}
	b := diag.Diagnostic{Position: diag.Position{File: "a", Line: 9}, Message: "y"}
	c := diag.Diagnostic{Severity: diag.Error, Position: a.Position, Message: "x"}
	d := diag.Diagnostic{Position: a.Position, Object: web, Message: "a"}
	got := diag.Sort([]diag.Diagnostic{d, a, c, b, a, b})
	if diff := cmp.Diff([]diag.Diagnostic{b, c, a, d}, got); diff != "" {
		t.Errorf("(-want +got)\n%s", diff)
	}
}

func TestHasErrors(t *testing.T) {
	warning, bad := diag.Diagnostic{}, diag.Diagnostic{Severity: diag.Error}
	if diag.HasErrors(nil) || diag.HasErrors([]diag.Diagnostic{warning}) || !diag.HasErrors([]diag.Diagnostic{warning, bad}) {
		t.Error("only an Error is an error")
	}
}
