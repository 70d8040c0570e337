package routingtest

import (
	"strings"
	"testing"
)

// A host is redirected to its other name, with or without www. The exceptions are names that are served, and
// names of another owner.
func TestRedirectWWW(t *testing.T) {
	t.Parallel()
	// Younger Ingresses serve "taken" from another namespace, and "late" from this one.
	www := func(host string) ingress {
		return ingress{name: strings.ReplaceAll(host, ".", "-"), annotations: annotated("redirect-www", "true"), rules: []string{host + " P /app a"}}
	}
	both := ingress{name: "both", annotations: annotated("redirect-www", "true"), rules: []string{"both.example P / a", "www.both.example P / b"}}
	taken := ingress{namespace: "other", name: "taken", age: 9, rules: []string{"www.taken.example P /x e"}}
	wild := ingress{name: "wild", annotations: annotated("redirect-www", "true"), rules: []string{"*.wild.example P / a"}}
	alias := ingress{name: "alias", annotations: annotated("redirect-www", "true", "server-alias", "www.alias.example"), rules: []string{"alias.example P / a"}}
	shared := ingress{namespace: "other", name: "shared", age: 9, annotations: annotated("redirect-www", "true"), rules: []string{"shared.example P /x e"}}
	e := start(t, common(t)+all([]ingress{
		www("plain.example"), www("www.short.example"), www("taken.example"), www("late.example"), both,
		{name: "late", age: 9, rules: []string{"www.late.example P /x b"}},
		taken, wild, alias, shared,
		{name: "mine", rules: []string{"shared.example P / a"}},
		{name: "catch", rules: []string{"- P / b"}},
	}))
	for _, c := range []struct {
		tls                  bool
		host, target, answer string // the Location, or what answered
	}{
		{false, "www.plain.example", "/x/y?z=%20", "http://plain.example/x/y?z=%20"},
		{true, "www.plain.example", "/", "https://plain.example/"},
		{false, "WWW.plain.example:8080", "//evil.example/", "http://plain.example//evil.example/"},
		{false, "plain.example", "/app", "a"},
		{false, "plain.example", "/other", "404"},
		{false, "short.example", "/x", "http://www.short.example/x"},
		{false, "www.www.short.example", "/x", "b"},
		{false, "www.short.example", "/app", "a"},
		{false, "www.late.example", "/x", "b"},
		{false, "www.late.example", "/", "404"},
		{false, "www.taken.example", "/x", "e"},
		{false, "www.taken.example", "/", "404"},
		{false, "www.both.example", "/", "b"},
		{false, "both.example", "/", "a"},
		{false, "www.wild.example", "/", "a"},
		{false, "www.alias.example", "/", "a"},
		{false, "www.shared.example", "/", "b"},
	} {
		got := e.get(t, c.host, c.target)
		if c.tls {
			got = e.getTLS(t, c.host, c.target)
		}
		answer := answer(got.Response)
		if got.StatusCode == 308 {
			answer = got.Header.Get("Location")
		} else if got.StatusCode != 200 {
			answer = got.Status[:3]
		}
		if answer != c.answer {
			t.Errorf("%s%s: %s, want %s", c.host, c.target, answer, c.answer)
		}
	}
}
