package routingtest

import (
	"strings"
	"testing"

	"github.com/hapsnap/hapsnap/compiler/diag"
)

func TestAccessLists(t *testing.T) {
	t.Parallel()
	services := serviceYAML("shop", "a", mirror(t, "a", nil))
	var many []string
	for i := range 200 {
		many = append(many, "10.0."+string(rune('0'+i%10))+".0/24")
	}
	e := start(t, services+all([]ingress{
		optioned("in", "allow-list", "127.0.0.0/8, ::1"),
		optioned("out", "allow-list", "10.0.0.0/8"),
		optioned("denied", "deny-list", "127.0.0.0/8"),
		optioned("both", "allow-list", "127.0.0.0/8", "deny-list", "127.0.0.0/8"),
		optioned("long", "allow-list", strings.Join(many, "\n")+"\n127.0.0.0/8"),
		optioned("other", "deny-list", strings.Join(many, ",")),
	}))
	clean(t, e)
	for host, want := range map[string]int{"in": 200, "out": 403, "denied": 403, "both": 403, "long": 200, "other": 200} {
		if got := e.get(t, host+".example", "/"); got.StatusCode != want {
			t.Errorf("%s: %d, want %d", host, got.StatusCode, want)
		}
	}
}

func TestRateLimit(t *testing.T) {
	t.Parallel()
	services := serviceYAML("shop", "a", mirror(t, "a", nil))
	e := start(t, services+all([]ingress{
		optioned("address", "rate-limit", "5", "rate-limit-period", "1h"),
		optioned("exempt", "rate-limit", "5", "rate-limit-period", "1h", "rate-limit-exempt", "127.0.0.0/8"),
		optioned("key", "rate-limit", "5", "rate-limit-period", "1h", "rate-limit-key", "header X-Key", "rate-limit-status", "503"),
	}))
	clean(t, e)
	passed := func(host string, lines ...string) (n int, last reply) {
		for range 10 {
			if last = e.get(t, host+".example", "/", lines...); last.StatusCode == 200 {
				n++
			}
		}
		return n, last
	}
	if n, last := passed("address"); n != 5 || last.StatusCode != 429 || last.Header.Get("Retry-After") != "3600" {
		t.Errorf("address: %d of 10 passed, then %d, Retry-After %q", n, last.StatusCode, last.Header.Get("Retry-After"))
	}
	if n, _ := passed("exempt"); n != 10 {
		t.Errorf("exempt: %d of 10 passed", n)
	}
	// A value is counted apart from others that begin like it, and from the address that it spells.
	long := "X-Key: " + strings.Repeat("k", 200)
	for _, line := range []string{"X-Key: one", "X-Key: two", "X-Key: 127.0.0.1", long + "1", long + "2", "X-Other: none", "X-Key:"} {
		want := 5
		if line == "X-Key:" { // counted by address, like the one before
			want = 0
		}
		if n, last := passed("key", line); n != want || last.StatusCode != 503 {
			t.Errorf("%s: %d of 10 passed, then %d", line, n, last.StatusCode)
		}
	}
}

// If the protection of a route cannot be built, the route answers 503, and the compiler says why. Other routes
// do not get its requests.
func TestProtectionFailsClosed(t *testing.T) {
	t.Parallel()
	services := serviceYAML("shop", "a", mirror(t, "a", nil))
	admin := func(name string, options ...string) ingress {
		return ingress{name: name, annotations: annotated(options...), rules: []string{"open.example P /" + name + " a"}}
	}
	broken := admin("broken", "allow-list", "10.0.0.0/8")
	broken.rules = append(broken.rules, "UPPER_case!.example P / a")
	e := start(t, services+all([]ingress{
		{name: "open", rules: []string{"open.example P / a"}},
		admin("list", "allow-list", "10.0.0.0/33"),
		admin("empty", "deny-list", ""),
		admin("size", "max-body-size", "big"),
		admin("period", "rate-limit", "1", "rate-limit-period", "soon"),
		admin("verify", "backend-verify", "yes"),
		admin("unverified", "backend-verify", "system", "backend-protocol", "h1-tls"),
		broken,
	}))
	said := map[string]bool{}
	for _, d := range e.result.Diagnostics {
		if d.Severity == diag.Error {
			said[d.Object.Name] = true
		}
	}
	for _, name := range []string{"list", "empty", "size", "period", "verify", "unverified", "broken"} {
		if got := e.get(t, "open.example", "/"+name+"/x"); got.StatusCode != 503 || !said[name] {
			t.Errorf("%s: %d, reported %v", name, got.StatusCode, said[name])
		}
	}
	if got := e.get(t, "open.example", "/"); got.StatusCode != 200 {
		t.Errorf("the open route: %d", got.StatusCode)
	}
}

// A namespace that has a host, and has its paths compared as they come, opens no way around what another namespace protects there: for
// the Services of that namespace, paths in another than their normal form are refused.
func TestPathsAsSentOfAnotherNamespace(t *testing.T) {
	t.Parallel()
	const asSent = "hapsnap.dev/normalize-paths: \"false\""
	e := start(t, serviceYAML("other", "o", mirror(t, "o", nil))+serviceYAML("shop", "a", mirror(t, "a", nil))+
		ingress{namespace: "other", name: "first", rules: []string{"h.example P /other o", "own.example P / o"}, annotations: asSent}.yaml()+
		ingress{name: "open", age: 1, rules: []string{"h.example P / a"}}.yaml()+
		ingress{name: "admin", age: 2, rules: []string{"h.example P /admin a"}, annotations: "hapsnap.dev/allow-list: 192.0.2.0/24"}.yaml()+
		ingress{name: "agrees", age: 3, rules: []string{"own.example P /a a"}, annotations: "hapsnap.dev/allow-list: 127.0.0.0/8\n    " + asSent}.yaml())
	for target, want := range map[string]int{
		"/admin": 403, "//admin": 400, "///admin": 400, "/%61dmin": 400, "/./admin": 400, "/x/../admin": 400, "/admin%2f": 400, "/admin;x": 400, "/caf%c3%a9": 400,
		"/": 200, "/x": 200, "/caf%C3%A9": 200, "/a%20b": 200, "/x?y=//admin": 200, "/other": 200, "/other//x": 200, "/other/%61": 200,
	} {
		if got := e.get(t, "h.example", target); got.StatusCode != want {
			t.Errorf("%s: %d, want %d", target, got.StatusCode, want)
		}
	}
	if got := e.get(t, "own.example", "/a//x"); got.StatusCode != 200 {
		t.Errorf("who compares paths as they come gets %d", got.StatusCode)
	}
	var told []string
	for _, d := range e.result.Diagnostics {
		if strings.Contains(d.Message, "not in its normal form") {
			told = append(told, d.Object.Name)
		}
	}
	if got := strings.Join(told, " "); got != "admin" {
		t.Errorf("%q hear of it", got)
	}
}
