package explain

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	networkingv1 "k8s.io/api/networking/v1"

	"github.com/hapsnap/hapsnap/compiler/diag"
	"github.com/hapsnap/hapsnap/compiler/inputs"
	"github.com/hapsnap/hapsnap/compiler/routing"
	"github.com/hapsnap/hapsnap/compiler/routing/hostname"
	"github.com/hapsnap/hapsnap/internal/manifests"
	"github.com/hapsnap/hapsnap/snapshots/request"
)

// Claim is a rule of an Ingress that the request falls under and that does not have it.
type Claim struct {
	Object   diag.Object
	Position diag.Position
	Field    string
	Rule     string // such as "shop.example.com/cart (Prefix)"
	Reason   string

	rank [3]int // of the host, whether the path is exact, and how long it is
}

// Losers says which rules claim a request that another rule has.
type Losers struct {
	Form routing.PathForm
	// Compiled reports whether an Ingress is compiled: others are not looked at.
	Compiled func(inputs.Object[networkingv1.Ingress]) bool
	Found    []diag.Diagnostic // of the compile
	// Winners are the places of the rules that have the request, as positions or fields.
	Winners func(object diag.Object, position diag.Position, field string) bool
}

// Of returns the claims of Ingresses that do not get the request, those that came nearest first.
func (l Losers) Of(ingresses []inputs.Object[networkingv1.Ingress], r request.Request) []Claim {
	host, _, _ := strings.Cut(r.Host, ":")
	host = hostname.Normal(host)
	asked, _ := r.Path()
	asked = l.Form.Of(asked)
	var best [3]int
	var out []Claim
	for _, ing := range ingresses {
		compiled := l.Compiled(ing)
		for _, c := range l.claims(ing, host, asked) {
			won := l.Winners(c.Object, c.Position, c.Field)
			if c.Reason = l.said(c); c.Reason == "" && !compiled {
				c.Reason = "its Ingress is of another class or namespace, and is not compiled"
			}
			if c.Reason == "" && slices.Compare(c.rank[:], best[:]) > 0 {
				best = c.rank
			}
			if !won {
				out = append(out, c)
			}
		}
	}
	for i := range out {
		out[i].Reason = cmp.Or(out[i].Reason, less(out[i].rank, best))
	}
	slices.SortStableFunc(out, func(a, b Claim) int {
		return cmp.Or(-slices.Compare(a.rank[:], b.rank[:]), a.Object.Compare(b.Object), cmp.Compare(a.Field, b.Field))
	})
	return out
}

// less says why one rule does not have what another one has.
func less(rank, best [3]int) string {
	switch {
	case rank[0] < best[0]:
		return "a rule for this very host, or a narrower wildcard, comes first"
	case rank[1] < best[1]:
		return "an exact path comes before a prefix"
	case rank[2] < best[2]:
		return "a longer path comes first"
	}
	return "another rule has the request"
}

// said is what the compile reported of the rule, or of its Ingress as a whole.
func (l Losers) said(c Claim) string {
	whole := ""
	for _, d := range l.Found {
		switch {
		case d.Object != c.Object:
		case d.Position == c.Position && (d.Conflict || d.Severity == diag.Error):
			return d.Message
		case d.Severity == diag.Error && !d.Conflict:
			whole = cmp.Or(whole, "its Ingress has an error: "+d.Message)
		}
	}
	return whole
}

// claims returns the paths of an Ingress that a request falls under.
func (l Losers) claims(ing inputs.Object[networkingv1.Ingress], host, asked string) []Claim {
	var out []Claim
	for i, rule := range ing.Value.Spec.Rules {
		of := hostname.Of(rule.Host)
		rank := map[bool]int{true: 2}[of == host && of != ""]
		switch {
		case rule.Host == "", rank == 2:
		case hostname.WildcardOf(host) == of:
			rank = 1
		default:
			continue
		}
		if rule.HTTP == nil {
			continue
		}
		for j, p := range rule.HTTP.Paths {
			exact := p.PathType != nil && *p.PathType == networkingv1.PathTypeExact
			path := l.Form.Of(cmp.Or(p.Path, "/"))
			if exact && path != asked || !exact && !strings.HasPrefix(asked+"/", strings.TrimSuffix(path, "/")+"/") {
				continue
			}
			at := []any{"spec", "rules", i, "http", "paths", j, "path"}
			kind := networkingv1.PathTypeImplementationSpecific
			if p.PathType != nil {
				kind = *p.PathType
			}
			out = append(out, Claim{
				Object: ing.Ref, Position: ing.Position(at...), Field: manifests.FieldPath(at),
				Rule: fmt.Sprintf("%s%s (%s)", cmp.Or(rule.Host, "*"), cmp.Or(p.Path, "/"), kind),
				rank: [3]int{rank, map[bool]int{true: 1}[exact], len(strings.TrimSuffix(path, "/"))},
			})
		}
	}
	return out
}
