package ingress

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/hapsnap/hapsnap/compiler/diag"
	"github.com/hapsnap/hapsnap/compiler/routing"
	"github.com/hapsnap/hapsnap/compiler/routing/ownership"
)

// hostOf returns a host with routes, each of an Ingress of its own.
func hostOf(routes map[routing.PathMatch]diag.Object) *virtualHost {
	h := &virtualHost{routes: map[routing.PathMatch]claim{}}
	for match, by := range routes {
		h.routes[match] = claim{by: &claims{Claimant: ownership.Claimant{Ref: by}}}
		if match.Type == routing.Expression {
			h.expressions = append(h.expressions, match.Path)
		}
	}
	return h
}

// slowlyAbove compares each expression with each prefix, unlike prefixesAbove.
func slowlyAbove(h *virtualHost, e string) []routing.PathMatch {
	var out []routing.PathMatch
	for _, prefix := range slices.SortedFunc(maps.Keys(h.routes), routing.PathMatch.Compare) {
		if prefix.Type == routing.Prefix && strings.HasPrefix(routing.LiteralOf(e)+"/", strings.ToLower(prefix.Path)+"/") {
			out = append(out, prefix)
		}
	}
	return out
}

// The prefixes above an expression, and those that it precedes, are the same as by comparing all pairs.
func TestPrefixesAboveExpressions(t *testing.T) {
	t.Parallel()
	r := rand.New(rand.NewPCG(7, 1))
	pieces := []string{"/", "/a", "/A", "/b", "a", "/a/b", ".", "/(x|y)", "[ab]", "/é"}
	path := func() string {
		out := ""
		for range r.IntN(5) {
			out += pieces[r.IntN(len(pieces))]
		}
		return out
	}
	some, preceded := 0, 0
	for range 300 {
		routes := map[routing.PathMatch]diag.Object{}
		for range 20 {
			kind := []routing.PathType{routing.Prefix, routing.Prefix, routing.Exact, routing.Expression}[r.IntN(4)]
			routes[routing.PathMatch{Type: kind, Path: path()}] = diag.Object{Namespace: string(rune('m' + r.IntN(2))), Name: string(rune('v' + r.IntN(2)))}
		}
		h := hostOf(routes)
		above := h.prefixesAbove()
		for _, e := range h.expressions {
			want := slowlyAbove(h, e)
			if diff := cmp.Diff(want, above[e].prefixes); diff != "" {
				t.Fatalf("%q of %v: %s", e, routes, diff)
			}
			literal, match := routing.LiteralOf(e), routing.PathMatch{Type: routing.Expression, Path: e}
			for _, p := range want {
				some++
				by, below := routes[match], strings.ToLower(p.Path)+"/"
				wants := by == routes[p] || by.Namespace == routes[p].Namespace && strings.HasPrefix(literal, below) && len(literal) > len(below)
				if got := h.precedes(match, above[e].literal, p); got != wants {
					t.Errorf("%q precedes %q: %t of %v", e, p.Path, got, routes)
				}
				if wants {
					preceded++
				}
			}
		}
	}
	if some < 500 || preceded < 100 || preceded == some {
		t.Errorf("%d prefixes are above an expression, and %d come after it", some, preceded)
	}
}

// An expression is compiled once, however many prefixes its host has.
func TestExpressionsAreReadOnce(t *testing.T) {
	allocations := func(prefixes int) float64 {
		routes := map[routing.PathMatch]diag.Object{}
		by := diag.Object{Namespace: "shop", Name: "web"}
		for i := range prefixes {
			routes[routing.PathMatch{Type: routing.Prefix, Path: fmt.Sprint("/p", i)}] = by
		}
		for i := range 60 {
			routes[routing.PathMatch{Type: routing.Expression, Path: fmt.Sprintf("/x%d/(a|b|c)", i)}] = by
		}
		h := hostOf(routes)
		return testing.AllocsPerRun(1, func() { h.expressionRoutes(h.prefixesAbove()) })
	}
	few, many := allocations(10), allocations(3000)
	if each := (many - few) / 2990; each > 5 {
		t.Errorf("%.0f allocations with 10 prefixes, %.0f with 3,000: %.0f for each", few, many, each)
	}
}
