package compiler

import (
	"fmt"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/hapsnap/hapsnap/compiler/config"
	"github.com/hapsnap/hapsnap/compiler/diag"
	"github.com/hapsnap/hapsnap/compiler/policy"
	"github.com/hapsnap/hapsnap/compiler/routing"
	"github.com/hapsnap/hapsnap/internal/testing/worlds"
	"github.com/hapsnap/hapsnap/snapshots"
)

func TestRateLimitsCountFewerClients(t *testing.T) {
	t.Parallel()
	limits := config.Default().Limits
	for _, x := range []struct {
		name   string
		has    map[string]int // limits of each namespace
		limits config.Limits
		want   map[string]int // how many clients each of them counts
		says   []string
	}{
		{"they fit", map[string]int{"a": 4, "b": 4}, limits, map[string]int{}, nil},
		{"too many of a namespace", map[string]int{"a": 5, "b": 1}, limits, map[string]int{"a": 50_000}, nil},
		{"one more changes nothing", map[string]int{"a": 6, "b": 1}, limits, map[string]int{"a": 50_000}, nil},
		{"many more", map[string]int{"a": 33, "b": 1}, limits, map[string]int{"a": 6250}, []string{
			"a/a-32: namespace a has rate limits for 33 backends, so each of them counts 6250 clients at a time instead of 100000: those of a namespace may count 400000 together",
		}},
		{"too many of all", map[string]int{"a": 4, "b": 4, "c": 30, "d": 1}, config.Limits{CountedClients: 250_000}, map[string]int{"a": 12_500, "b": 12_500, "c": 1562, "d": 50_000}, []string{
			"/: the rate limits of 30 backends count as few as 1562 clients at a time instead of 100000, since those of all namespaces may count 250000 together: they are in c",
		}},
		{"one warning for all", map[string]int{"a": 20, "b": 20, "c": 9}, config.Limits{CountedClients: 100_000}, map[string]int{"a": 1562, "b": 1562, "c": 3125}, []string{
			"/: the rate limits of 49 backends count as few as 1562 clients at a time instead of 100000, since those of all namespaces may count 100000 together: they are in a, b, c",
		}},
		{"no limits", map[string]int{"a": 50}, config.Limits{}, map[string]int{}, nil},
		{"as few as they may", map[string]int{"a": 10_000}, limits, map[string]int{"a": leastCounted}, []string{"a/a-9999: "}},
	} {
		var backends []routing.Backend
		ages := map[diag.Object]time.Time{}
		for _, namespace := range []string{"a", "b", "c", "d"} {
			for i := range x.has[namespace] {
				object := diag.Object{Kind: "HTTPRoute", Namespace: namespace, Name: fmt.Sprintf("%s-%d", namespace, i)}
				ages[object] = time.Unix(int64(i), 0)
				backends = append(backends, routing.Backend{
					Name: object.Name, Protection: &policy.Protection{MaxBody: 7, Rate: &policy.RateLimit{Requests: 3}},
					Origins: []routing.Origin{{Object: diag.Object{Kind: "Gateway", Namespace: "edge", Name: "all"}}, {Object: object}},
				}, routing.Backend{Name: "free-" + object.Name, Protection: &policy.Protection{}})
			}
		}
		before := fmt.Sprint(backends[0].Protection.Rate, x.has)
		got, found := countFewer(backends, x.limits, func() map[diag.Object]time.Time { return ages })
		if fmt.Sprint(backends[0].Protection.Rate, x.has) != before {
			t.Errorf("%s: the given backends, which claims share, were changed", x.name)
		}
		for _, b := range got {
			if b.Protection.Rate == nil {
				continue
			}
			want := policy.Protection{MaxBody: 7, Rate: &policy.RateLimit{Requests: 3, Counted: x.want[b.Name[:1]]}}
			if !reflect.DeepEqual(*b.Protection, want) {
				t.Fatalf("%s: %s has %+v, want %d", x.name, b.Name, *b.Protection.Rate, want.Rate.Counted)
			}
		}
		if len(found) != len(x.says) {
			t.Fatalf("%s: reported %v", x.name, found)
		}
		for i, d := range found {
			if says := d.Object.Namespace + "/" + d.Object.Name + ": " + d.Message; !strings.HasPrefix(says, x.says[i]) || d.Severity != diag.Warning {
				t.Errorf("%s: %q, want %q", x.name, says, x.says[i])
			}
		}
	}
}

// The tables of what is compiled fit, and the report says so.
func TestTablesOfANamespaceFit(t *testing.T) {
	t.Parallel()
	in := worlds.Ingresses(40)
	for _, ing := range in.Ingresses {
		ing.Value.Annotations = map[string]string{"hapsnap.dev/rate-limit": "5"}
	}
	r, _ := published(t, in)
	text := ""
	for _, f := range r.Artifact.Files {
		if f.Path == snapshots.ConfigFile {
			text = string(f.Content)
		}
	}
	full, fewer := strings.Count(text, " size 100000 "), strings.Count(text, " size 6250 ")
	if full != 0 || fewer == 0 {
		t.Errorf("%d full tables, %d smaller ones", full, fewer)
	}
	for _, d := range r.Diagnostics {
		if strings.Contains(d.Message, "counts 6250 clients") {
			return
		}
	}
	t.Errorf("reported %v", r.Diagnostics)
}
