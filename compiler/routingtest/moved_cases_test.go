package routingtest

import (
	"crypto/tls"
	"fmt"
	"regexp"
	"strings"
	"testing"

	"github.com/hapsnap/hapsnap/compiler/config"
)

// startMoved runs Ingresses, and beside them the Gateway that is generated from them.
func startMoved(t *testing.T, objects string) (edge, moved) {
	t.Helper()
	var m moved
	e := startEdited(t, func(cfg *config.Config) string {
		cfg.GatewayAPI.Enabled = true
		m = move(t, *cfg, "web", objects)
		return gatewayClass + objects + m.yaml
	})
	return e, m
}

// alike fails unless the Ingress and its Gateway both give the expected answer.
func alike(t *testing.T, e edge, m moved, host, request, want string) {
	t.Helper()
	line, rest, _ := strings.Cut(request, "\n")
	text := strings.TrimSuffix(line+" HTTP/1.1\nHost: "+host+"\n"+rest, "\n")
	before, after := answer(e.send(t, false, text).Response), answer(m.send(t, false, "", text).Response)
	if before != want || after != want {
		t.Errorf("%s %q: %s before, and %s after, want %s\n%s", host, request, before, after, want, m.yaml)
	}
}

// Canaries become headers and weights in routes.
func TestCanariesMoved(t *testing.T) {
	t.Parallel()
	objects := common(t) + all([]ingress{
		{name: "header", rules: []string{"header.example P / a", "header.example E /exact a"}},
		canaryOf("header-c", []string{"header.example P / b", "header.example E /exact d"}, "canary-by-header", "X-Canary", "canary-weight", "100"),
		{name: "value", rules: []string{"value.example P / a"}},
		canaryOf("value-c", []string{"value.example P / b"}, "canary-by-header", "X-Canary blue,1", "canary-by-cookie", "canary"),
		{name: "pattern", rules: []string{"pattern.example P / a"}},
		canaryOf("pattern-c", []string{"pattern.example P / b"}, "canary-by-header", "X-Canary", "canary-by-header-pattern", "^beta-[0-9]+$"),
		{name: "part", rules: []string{"part.example P / a"}},
		canaryOf("part-c", []string{"part.example P / b"}, "canary-by-header", "X-Canary", "canary-by-header-pattern", "x[0-9]"),
		{name: "weight", rules: []string{"weight.example P / a"}},
		canaryOf("weight-c", []string{"weight.example P / b"}, "canary-weight", "50"),
	})
	e, m := startMoved(t, objects)
	for _, c := range []struct{ host, request, want string }{
		{"header.example", "GET /x", "b"}, {"header.example", "GET /x\nX-Canary: never", "a"}, {"header.example", "GET /x\nX-Canary: always", "b"},
		{"header.example", "GET /exact\nX-Canary: never", "a"}, {"header.example", "GET /exact\nX-Canary: always", "d"},
		{"value.example", "GET /", "a"}, {"value.example", "GET /\nX-Canary: blue,1", "b"}, {"value.example", "GET /\nX-Canary: always", "a"},
		{"value.example", "GET /\nCookie: x=1; canary=always; y=2", "b"}, {"value.example", "GET /\nCookie: canary=always", "b"},
		{"value.example", "GET /\nCookie: xcanary=always", "a"}, {"value.example", "GET /\nCookie: canary=alwaysx", "a"}, {"value.example", "GET /\nCookie: canary=never", "a"},
		{"value.example", "GET /\nX-Canary: blue,1\nCookie: canary=never", "b"},
		{"pattern.example", "GET /\nX-Canary: beta-12", "b"}, {"pattern.example", "GET /\nX-Canary: beta-12a", "a"}, {"part.example", "GET /\nX-Canary: 1x1y", "b"}, {"part.example", "GET /\nX-Canary: 1xy", "a"},
	} {
		alike(t, e, m, c.host, c.request, c.want)
	}
	reached := map[string]int{}
	for range 60 {
		reached[answer(m.send(t, false, "", "GET / HTTP/1.1\nHost: weight.example").Response)]++
	}
	if reached["a"] == 0 || reached["b"] == 0 || len(reached) != 2 {
		t.Errorf("a weight of 50 gives %v", reached)
	}
}

// Expressions become expressions in routes, except those that would then come before a prefix.
func TestExpressionsMoved(t *testing.T) {
	t.Parallel()
	regex := func(name string, more ...string) ingress {
		return ingress{name: name, annotations: annotated("path-type-default", "Regex"), rules: more}
	}
	e, m := startMoved(t, common(t)+all([]ingress{
		regex("plain", "plain.example I /x[0-9]+ a", "plain.example I /x[0-9]+/long b", "plain.example E /x1 c", "plain.example P / d"),
		regex("before", "before.example I /(a|b) a"), {name: "before-prefix", age: 1, rules: []string{"before.example P /a b"}},
	}))
	for _, c := range []struct{ host, request, want string }{
		{"plain.example", "GET /x12", "a"}, {"plain.example", "GET /X12/y?z", "a"}, {"plain.example", "GET /x3/LONG/x", "b"}, {"plain.example", "GET /x1", "c"},
		{"plain.example", "GET /y", "d"}, {"plain.example", "GET /", "d"}, {"before.example", "GET /a/x", "b"},
	} {
		alike(t, e, m, c.host, c.request, c.want)
	}
	if !m.says("before", `path "/(a|b)" cannot be moved`) || !m.says(`comes before the prefix "/a"`) {
		t.Errorf("the report does not say that an expression comes after a prefix: %v", m.found)
	}
	if got := answer(m.send(t, false, "", "GET /b HTTP/1.1\nHost: before.example").Response); got != "404" {
		t.Errorf("an expression that was not moved: %s", got)
	}
}

// Protected paths stay closed: the path itself, other spellings of it, and shorter paths that contain it.
func TestProtectedIsNotOpened(t *testing.T) {
	t.Parallel()
	protected := annotated("allow-list", "192.0.2.0/24")
	// Services without selectors might have the same Pods, and then /b would be closed, too.
	services := regexp.MustCompile(`(kind: Service\nmetadata: .* name: (\w+)}\nspec: \{)`).ReplaceAllString(common(t), "${1}selector: {app: $2}, ")
	e, m := startMoved(t, services+all([]ingress{
		{name: "open", rules: []string{"h.example P / a", "h.example P /b b", "g.example P / b", "x.example P / c"}},
		{name: "admin", age: 1, annotations: protected, rules: []string{"h.example P /admin a"}},
		{name: "regex", age: 1, annotations: protected + "\n    " + annotated("path-type-default", "Regex"), rules: []string{"g.example I /(a|b) d"}},
		{name: "default", age: 2, annotations: protected, fallback: "c"},
	}))
	alike(t, e, m, "h.example", "GET /b/x", "b")
	for _, c := range []struct{ host, path string }{
		{"h.example", "/admin"}, {"h.example", "//admin/x"}, {"h.example", "/x/..%2fadmin"}, {"h.example", "/admin%2f"}, {"other.example", "/"},
	} {
		text := "GET " + c.path + " HTTP/1.1\nHost: " + c.host
		before, after := e.send(t, false, text), m.send(t, false, "", text)
		if before.StatusCode < 400 || after.StatusCode != 500 {
			t.Errorf("%s%s: %d before, %d after", c.host, c.path, before.StatusCode, after.StatusCode)
		}
	}
	if got := m.send(t, false, "", "GET /a HTTP/1.1\nHost: g.example"); got.StatusCode != 500 || !m.says("a path that is protected and cannot be moved") {
		t.Errorf("a protected expression that cannot be moved leaves its requests to a prefix: %d", got.StatusCode)
	}
	if !m.says("Ingress shop/open", "Service shop/a is protected by another route") {
		t.Errorf("the report does not say why / is closed: %v", m.found)
	}
}

// Over HTTPS, each host has its certificate, also below a wildcard. ssl-passthrough is kept.
func TestHTTPSMoved(t *testing.T) {
	t.Parallel()
	ca := newAuthority(t, "ca")
	behind := mirror(t, "behind", vouched(t, ca, tls.NoClientCert, "pass.example"))
	_, m := startMoved(t, common(t)+serviceYAML("shop", "tls", behind)+ca.secret(t, "", "web", "web.example")+ca.secret(t, "", "wild", "*.w.example")+all([]ingress{
		{name: "web", rules: []string{"web.example P / a"}, tls: []string{"web web.example"}},
		{name: "wild", rules: []string{"*.w.example P / b", "a.w.example P /x c"}, tls: []string{"wild *.w.example"}},
		{name: "pass", annotations: annotated("ssl-passthrough", "true"), rules: []string{"pass.example P / tls"}},
	}))
	for _, c := range []struct{ host, target, want string }{
		{"web.example", "/", "a"}, {"b.w.example", "/x", "b"}, {"a.w.example", "/x", "c"}, {"a.w.example", "/y", "404"},
	} {
		r := m.verified(t, ca, c.host, c.target)
		if got := answer(r.Response); got != c.want {
			t.Errorf("%s%s: %s, want %s\n%s", c.host, c.target, got, c.want, m.yaml)
		}
	}
	if r := m.verified(t, ca, "pass.example", "/"); r.seen.Name != "behind" || r.seen.SNI != "pass.example" {
		t.Errorf("a connection that is passed on got to %+v", r.seen)
	}
	if !m.says("host *.w.example stands for names of one label or more") {
		t.Errorf("the report says nothing of wildcards: %v", m.found)
	}
}

// verified sends a request over TLS and verifies the server's certificate.
func (m moved) verified(t *testing.T, ca authority, host, target string) reply {
	t.Helper()
	c, err := (&tls.Dialer{Config: &tls.Config{RootCAs: ca.roots(), ServerName: host}}).DialContext(t.Context(), "tcp", m.https)
	if err != nil {
		t.Fatal(host, err)
	}
	defer c.Close()
	r, err := exchange(c, fmt.Sprintf("GET %s HTTP/1.1\nHost: %s", target, host))
	if err != nil {
		t.Fatal(err)
	}
	return r
}
