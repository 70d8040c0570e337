package decision_test

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/hapsnap/hapsnap/compiler/diag"
	"github.com/hapsnap/hapsnap/compiler/routing"
	"github.com/hapsnap/hapsnap/compiler/routing/decision"
)

// Decisions agree with the routes from which they were made. This implementation tries the routes one after the
// other.
func TestDecideAgreesWithRoutes(t *testing.T) {
	t.Parallel()
	for seed := range uint64(200) {
		r := rand.New(rand.NewPCG(seed, 7))
		routes := randomRoutes(r)
		d := decision.Decide([]routing.Host{{Name: "h.example", Routes: routes}}, nil)
		choice := routing.Host{Routes: routes}.Choices()[0]
		for range 50 {
			request := map[string]string{}
			for _, name := range []string{"a", "b", "c"} {
				request[name] = fmt.Sprint(r.IntN(3))
			}
			want := slices.IndexFunc(routes, func(route routing.Route) bool {
				return !slices.ContainsFunc(route.Match.Conditions, func(c routing.Condition) bool { return request[c.Name] != c.Value })
			})
			if got := decided(d, choice.To(), request); got != routes[want].Backend {
				t.Fatalf("seed %d, request %v: %s, want %s\n%+v", seed, request, got, routes[want].Backend, d)
			}
		}
	}
}

// randomRoutes are routes of one path. The last one has no conditions.
func randomRoutes(r *rand.Rand) []routing.Route {
	out := make([]routing.Route, 2+r.IntN(6))
	last := len(out) - 1
	out[last].Backend = "shop_rest"
	for i := range last {
		out[i].Backend = fmt.Sprint("shop_", i)
		for n, name := range []string{"a", "b", "c"} {
			if n == i%3 || r.IntN(2) == 0 {
				out[i].Match.Conditions = append(out[i].Match.Conditions, routing.Condition{Of: routing.Query, Name: name, Value: fmt.Sprint(r.IntN(3))})
			}
		}
	}
	return out
}

// decided does with the maps what HAProxy does.
func decided(d decision.Tables, to string, request map[string]string) string {
	var set uint64
	for _, p := range d.Parts {
		for _, c := range d.Conditions {
			if c.Key == request[p.Name]+p.Key()+to {
				set |= c.Bits
			}
		}
	}
	for position := range d.Positions {
		for _, r := range d.Routes {
			if r.Key == fmt.Sprintf("%s:%d", to, position+1) && set&r.Needs == r.Needs {
				return r.To
			}
		}
	}
	return ""
}

// Equal choices are made once. A route without conditions needs no choice. Header names have one form. A name
// in two parts of requests counts twice.
func TestDecide(t *testing.T) {
	t.Parallel()
	route := func(ingress string, yields bool, backend string, conditions ...routing.Condition) routing.Route {
		return routing.Route{
			Match:   routing.Match{PathMatch: routing.PathMatch{Type: routing.Prefix}, Conditions: conditions},
			Backend: backend, Yields: yields, Origin: routing.Origin{Object: diag.Object{Kind: "Ingress", Name: ingress}},
		}
	}
	of := func(part routing.Part, name, value string) routing.Condition {
		return routing.Condition{Of: part, Name: name, Value: value}
	}
	routes := []routing.Route{
		route("one", true, "b", of(routing.Header, "X-A", "1 2|3")),
		route("one", false, "c", of(routing.Cookie, "X-A", "1"), of(routing.HeaderPattern, "X-A", "^b$")),
		route("main", false, "a"),
	}
	d := decision.Decide([]routing.Host{{Name: "1", Routes: routes}, {Name: "2", Routes: routes}, {Name: "3", Routes: []routing.Route{route("main", false, "a")}}}, nil)
	if len(d.Conditions) != 3 || len(d.Routes) != 3 || d.Positions != 3 || len(d.Patterns) != 1 || len(d.Patterns[0].Origins) != 1 {
		t.Fatalf("%+v", d)
	}
	if want := []decision.Part{{Of: routing.Cookie, Name: "X-A"}, {Of: routing.Header, Name: "x-a"}}; !slices.Equal(d.Parts, want) {
		t.Errorf("parts %v, want %v", d.Parts, want)
	}
	to := routing.Host{Routes: routes}.Choices()[0].To()
	if key := "1%202%7C3|header:x-a|" + to; !slices.ContainsFunc(d.Conditions, func(c decision.Condition) bool { return c.Key == key && c.Bits == 1 }) {
		t.Errorf("no %s in %v", key, d.Conditions)
	}
	want := []decision.Route{
		{Key: to + ":1", Needs: 1, To: "+b", Origin: routes[0].Origin},
		{Key: to + ":2", Needs: 6, To: "c", Origin: routes[1].Origin},
		{Key: to + ":3", Needs: 0, To: "a", Origin: routes[2].Origin},
	}
	if !slices.Equal(d.Routes, want) {
		t.Errorf("routes %v, want %v", d.Routes, want)
	}
}

// Each number below the total gives a backend its share, and hosts follow one another.
func TestSplitsAndNexts(t *testing.T) {
	t.Parallel()
	d := decision.Decide([]routing.Host{
		{Bind: "shop/web:80", Name: "a.h.example", Next: "shop/web:80|.h.example"}, {Bind: "shop/web:80", Name: ".h.example", Next: "shop/web:80|.example"},
		{Bind: "shop/web:80", Name: ".example", Next: "shop/web:80|"}, {Bind: "shop/web:80"},
	}, []routing.Split{{Name: "%a", Shares: []routing.Share{{Backend: "one", Weight: 3}, {Backend: "two", Weight: 2}}}})
	got := map[string]int{}
	for n := range d.Splits[0].Total {
		i := slices.IndexFunc(d.Splits[0].Shares, func(s decision.Share) bool { return n < s.Below })
		got[d.Splits[0].Shares[i].Backend]++
	}
	if got["one"] != 3 || got["two"] != 2 || d.Splits[0].Shares[1].Key != "%a:2" {
		t.Errorf("%v of %+v", got, d.Splits)
	}
	if d.Levels != 4 || len(d.Nexts) != 3 || d.Nexts[0].Key != "shop/web:80|a.h.example" || d.Widest < 2 {
		t.Errorf("%+v", d)
	}
}
