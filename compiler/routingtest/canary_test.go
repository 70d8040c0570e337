package routingtest

import (
	"fmt"
	"math"
	"strings"
	"testing"

	"github.com/hapsnap/hapsnap/compiler/config"
	"github.com/hapsnap/hapsnap/snapshots"
)

// canaryOf returns a canary Ingress with options, given in pairs, and with the rules of another Ingress.
func canaryOf(name string, rules []string, options ...string) ingress {
	return ingress{name: name, age: 1, annotations: annotated(append([]string{"canary", "true"}, options...)...), rules: rules}
}

func TestCanaryDecides(t *testing.T) {
	t.Parallel()
	by := []string{"canary-by-header", "X-Canary", "canary-by-cookie", "canary", "canary-weight"}
	e := start(t, common(t)+all([]ingress{
		{name: "none", rules: []string{"none.example P / a", "none.example P /plain c", "none.example E /exact a", "*.wild.example P /x a", "- P /any a"}},
		canaryOf("none-c", []string{"none.example P / b", "none.example E /exact d", "*.wild.example P /x b", "- P /any b"}, append(by, "0")...),
		{name: "all", annotations: annotated("server-alias", "alias.example"), rules: []string{"all.example P / a"}},
		canaryOf("all-c", []string{"all.example P / b"}, append(by, "100")...),
		{name: "value", rules: []string{"value.example P / a"}},
		canaryOf("value-c", []string{"value.example P / b"}, "canary-by-header", "X-Canary blue,1", "canary-by-cookie", "canary"),
	}))
	clean(t, e)
	for _, c := range []struct{ host, path, header, cookie, want string }{
		{"none.example", "/", "", "", "a"},
		{"none.example", "/x/y", "always", "", "b"},
		{"none.example", "/", "never", "", "a"},
		{"none.example", "/", "Always", "", "a"},
		{"none.example", "/", "always, never", "", "a"},
		{"none.example", "/", "", "always", "b"},
		{"none.example", "/", "", "never", "a"},
		{"none.example", "/", "", "xalways", "a"},
		{"none.example", "/", "never", "always", "a"},
		{"none.example", "/", "always", "never", "b"},
		{"none.example", "/", "maybe", "always", "b"},
		{"none.example", "/plain/x", "always", "always", "c"},
		{"none.example", "/exact", "always", "", "d"},
		{"none.example", "/exact/", "always", "", "b"},
		{"y.wild.example", "/x", "always", "", "b"},
		{"y.wild.example", "/x", "", "", "a"},
		{"y.wild.example", "/", "always", "", "404"},
		{"unknown.host", "/any", "", "always", "b"},
		{"all.example", "/", "", "", "b"},
		{"all.example", "/", "never", "", "a"},
		{"all.example", "/", "", "never", "a"},
		{"alias.example", "/", "", "", "b"},
		{"alias.example", "/", "never", "", "a"},
		{"value.example", "/", "", "", "a"},
		{"value.example", "/", "blue,1", "", "b"},
		{"value.example", "/", "blue", "", "a"},
		{"value.example", "/", "always", "", "a"},
		{"value.example", "/", "never", "always", "b"},
	} {
		request := fmt.Sprintf("GET %s HTTP/1.1\r\nHost: %s\r\nConnection: close\r\n", c.path, c.host)
		if c.header != "" {
			request += "x-canary: " + c.header + "\r\n"
		}
		if c.cookie != "" {
			request += "Cookie: a=b; canary=" + c.cookie + "\r\n"
		}
		if got := raw(t, e.http, request+"\r\n"); got != c.want {
			t.Errorf("%s%s, header %q, cookie %q: %s, want %s", c.host, c.path, c.header, c.cookie, got, c.want)
		}
	}
}

// Requests to the canary are subject to the protection of the other Ingress and to its changes of requests. If
// the other Ingress is closed, so is the canary.
func TestCanaryIsNoWayAround(t *testing.T) {
	t.Parallel()
	services := serviceYAML("shop", "a", mirror(t, "a", nil)) + serviceYAML("shop", "b", mirror(t, "b", nil))
	mains := []ingress{
		optioned("denied", "deny-list", "127.0.0.0/8"),
		optioned("closed", "allow-list", "nowhere"),
		optioned("broken", "allow-list", "127.0.0.0/8"),
		optioned("rewritten", "rewrite-path", "/new", "response-headers", "set X-From edge"),
		optioned("redirected", "redirect", "/elsewhere 301"),
	}
	mains[2].rules = append(mains[2].rules, "bad_host.example P / a")
	var yaml strings.Builder
	for _, main := range mains {
		yaml.WriteString(main.yaml() + canaryOf(main.name+"-c", []string{main.name + ".example P / b"}, "canary-by-header", "X-Canary", "canary-weight", "100").yaml())
	}
	e := start(t, services+yaml.String())
	for host, want := range map[string]int{"denied": 403, "closed": 503, "broken": 503, "redirected": 301} {
		for _, header := range []string{"always", "never", "other"} {
			if got := e.get(t, host+".example", "/", "X-Canary: "+header); got.StatusCode != want {
				t.Errorf("%s, header %s: %d, want %d", host, header, got.StatusCode, want)
			}
		}
	}
	for header, want := range map[string]string{"always": "b", "never": "a", "other": "b"} {
		got := e.get(t, "rewritten.example", "/x", "X-Canary: "+header)
		if got.seen.Name != want || got.seen.Target != "/new/x" || got.Header.Get("X-From") != "edge" {
			t.Errorf("rewritten, header %s: %+v", header, got.seen)
		}
	}
}

// A canary that is refused changes nothing for the other Ingresses.
func TestCanaryRefused(t *testing.T) {
	t.Parallel()
	services := common(t) + strings.Replace(serviceYAML("shop", "h2", echo(t, "h2")), "name: h2}", "name: h2, annotations: {hapsnap.dev/backend-protocol: h2}}", 1)
	all100 := []string{"canary-weight", "100"}
	foreign := canaryOf("foreign-c", []string{"foreign.example P / e"}, all100...)
	foreign.namespace = "other"
	unreadable := ingress{name: "unreadable-c", annotations: annotated("canary", "yes", "canary-weight", "100"), rules: []string{"unreadable.example P / b"}}
	broken := canaryOf("broken-c", []string{"broken.example P / b", "bad_host.example P / b"}, append(all100, "allow-list", "10.0.0.0/8")...)
	var mains []ingress
	for _, name := range []string{"foreign", "unreadable", "broken", "protected", "unlike", "gone", "empty"} {
		mains = append(mains, ingress{name: name, age: 5, rules: []string{name + ".example P / a"}})
	}
	e := start(t, services+all(mains)+all([]ingress{
		foreign, unreadable, broken,
		canaryOf("protected-c", []string{"protected.example P / b"}, append(all100, "deny-list", "10.0.0.0/8")...),
		canaryOf("unlike-c", []string{"unlike.example P / h2"}, all100...),
		canaryOf("gone-c", []string{"gone.example P / gone", "alone.example P / b"}, all100...),
		canaryOf("empty-c", []string{"empty.example P / empty"}, "canary-weight", "50", "canary-by-header", "X-Canary"),
	}))
	want := map[string]string{"alone.example/": "404"}
	for _, main := range mains {
		want[main.name+".example/"] = "a"
	}
	answers(t, e, want)
	for range 10 {
		if got := raw(t, e.http, "GET / HTTP/1.1\r\nHost: empty.example\r\nX-Canary: always\r\nConnection: close\r\n\r\n"); got != "a" {
			t.Fatalf("a canary without endpoints: %s, want a", got)
		}
	}
}

// If the main Service has no endpoint, the canary gets all requests, unless its weight is 0.
func TestCanaryOfNobody(t *testing.T) {
	t.Parallel()
	e := start(t, common(t)+all([]ingress{
		{name: "main", rules: []string{"some.example P / empty", "none.example P / empty"}},
		canaryOf("some", []string{"some.example P / b"}, "canary-weight", "10"),
		canaryOf("none", []string{"none.example P / b"}, "canary-weight", "0", "canary-by-header", "X-Canary"),
	}))
	clean(t, e)
	answers(t, e, map[string]string{"some.example/": "b", "none.example/": "503"})
	if got := raw(t, e.http, "GET / HTTP/1.1\r\nHost: none.example\r\nX-Canary: always\r\nConnection: close\r\n\r\n"); got != "b" {
		t.Errorf("by header: %s, want b", got)
	}
}

// pods returns a Service with n endpoints, whose servers answer with its name.
func pods(t *testing.T, name string, n int) string {
	t.Helper()
	yaml := serviceYAML("shop", name, echo(t, name))
	for i := range n - 1 {
		_, slice, _ := strings.Cut(serviceYAML("shop", name, echo(t, name)), "---\napiVersion: discovery")
		yaml += "---\napiVersion: discovery" + strings.Replace(slice, name+"-1", fmt.Sprint(name, "-", i+2), 1)
	}
	return yaml
}

// The weights hold among Services with different numbers of endpoints, within four standard deviations plus the
// unevenness of HAProxy's ring of hashes, which random uses too.
func TestCanaryWeights(t *testing.T) {
	t.Parallel()
	const requests = 4000
	type split struct {
		balance string
		weight  int
	}
	var splits []split
	for _, balance := range []string{"roundrobin", "random", "uri"} {
		for _, weight := range []int{1, 10, 50, 95} {
			splits = append(splits, split{balance, weight})
		}
	}
	yaml := pods(t, "main", 3) + pods(t, "canary", 2)
	for _, s := range splits {
		name := fmt.Sprint(s.balance, s.weight)
		main := optioned(name, "balance", s.balance)
		main.rules = []string{name + ".example P / main"}
		yaml += main.yaml() + canaryOf(name+"-c", []string{name + ".example P / canary"}, "canary-weight", fmt.Sprint(s.weight)).yaml()
	}
	e := start(t, yaml)
	clean(t, e)
	for _, s := range splits {
		t.Run(fmt.Sprint(s.balance, s.weight), func(t *testing.T) {
			t.Parallel()
			c, got := client{address: e.http}, map[string]int{}
			for n := range requests {
				got[c.ask(t, fmt.Sprint(s.balance, s.weight, ".example"), fmt.Sprint("/", n))]++
			}
			p := float64(s.weight) / 100
			most := 4 * math.Sqrt(p*(1-p)*requests)
			if s.balance != "roundrobin" {
				most += min(p, 1-p) * requests / 3
			}
			if off := math.Abs(float64(got["canary"]) - p*requests); off > most {
				t.Errorf("of %d requests %v, want %v for the canary", requests, got, p*requests)
			}
			if got["canary"]+got["main"] != requests {
				t.Errorf("answers: %v", got)
			}
		})
	}
}

// A session stays with the canary or with the main Service, wherever it began.
func TestCanarySessions(t *testing.T) {
	t.Parallel()
	main := ingress{name: "main", annotations: annotated("affinity", "cookie"), rules: []string{"web.example P / a"}}
	e := start(t, serviceYAML("shop", "a", mirror(t, "a", nil))+serviceYAML("shop", "b", mirror(t, "b", nil))+
		main.yaml()+canaryOf("c", []string{"web.example P / b"}, "canary-weight", "50").yaml())
	clean(t, e)
	for _, s := range enterAll(t, e, "web.example", 2) {
		s.stays(t, e, "web.example")
	}
}

// Changing a weight or the value of a header changes only what HAProxy can be told at run time.
func TestCanaryKeepsShape(t *testing.T) {
	t.Parallel()
	shape := func(options ...string) string {
		yaml := serviceYAML("shop", "a", 1) + serviceYAML("shop", "b", 2) + ingress{rules: []string{"web.example P / a"}}.yaml() +
			canaryOf("c", []string{"web.example P / b"}, options...).yaml()
		cfg := config.Default()
		cfg.HTTPS.Port = 0
		result, objects := compile(t, yaml, cfg)
		return string(bindDraft(t, "/edge", result.Draft, objects).Shape)
	}
	if a, b := shape("canary-weight", "10", "canary-by-header", "X-Canary"), shape("canary-weight", "20", "canary-by-header", "X-Canary"); a != b {
		t.Errorf("shapes with different weights differ: %s, %s", a, b)
	}
	if a, b := shape("canary-by-header", "X-Canary blue"), shape("canary-by-header", "x-canary green:2"); a != b {
		t.Errorf("shapes with different values differ: %s, %s", a, b)
	}
}

// Canaries of several teams, on the same headers and on different ones, decide only about requests for their
// own routes, whatever characters the values have.
func TestCanariesBesideEachOther(t *testing.T) {
	t.Parallel()
	main := ingress{name: "main"}
	var canaries []ingress
	rule := func(path, service string) string { return "web.example P " + path + " " + service }
	add := func(path string, options ...string) {
		main.rules = append(main.rules, rule(path, "a"))
		canaries = append(canaries, canaryOf("c"+path[1:], []string{rule(path, "b")}, options...))
	}
	values := []string{"blue", "Blue", "a.b", "a_b", "a~b", "a:b", "a/b", "a@b", "a+b", "a=b", "a,b", "a;b", "a*b", "-", "1", "0", strings.Repeat("v", 200)}
	for i, value := range values {
		add(fmt.Sprint("/value", i), "canary-by-header", "X-Team "+value)
	}
	add("/other", "canary-by-header", "X-Other blue")
	add("/pattern", "canary-by-header", "X-Team", "canary-by-header-pattern", "^b(lue|lack)$")
	add("/pattern2", "canary-by-header", "X-Other", "canary-by-header-pattern", "^b(lue|lack)$")
	add("/cookie", "canary-by-cookie", "team")
	e := start(t, common(t)+main.yaml()+all(canaries))
	clean(t, e)
	ask := func(path, header, want string) {
		t.Helper()
		if got := raw(t, e.http, "GET "+path+" HTTP/1.1\r\nHost: web.example\r\nConnection: close\r\n"+header+"\r\n"); got != want {
			t.Errorf("%s with %q: %s, want %s", path, header, got, want)
		}
	}
	for i := range values {
		for j, value := range values {
			want := "a"
			if i == j {
				want = "b"
			}
			ask(fmt.Sprint("/value", i, "/x"), "x-tEAM: "+value+"\r\n", want)
		}
	}
	for _, c := range []struct{ path, header, want string }{
		{"/value0", "", "a"},
		{"/value0", "X-Team:\r\n", "a"},
		{"/value0", "X-Team: %62lue\r\n", "a"},
		{"/value0", "X-Team: blue|header:x-team\r\n", "a"},
		{"/value0", "X-Team: " + strings.Repeat("\xff", 6000) + "\r\n", "a"},
		{"/value0", "X-Team: red\r\nX-Team: blue\r\n", "b"}, // the last value counts
		{"/value0", "X-Team: blue\r\nX-Team: red\r\n", "a"},
		{"/value0", "X-Other: blue\r\n", "a"},
		{"/value0", "Cookie: x-team=blue\r\n", "a"},
		{"/other", "X-Other: blue\r\n", "b"},
		{"/other", "X-Team: blue\r\n", "a"},
		{"/pattern", "X-Team: black\r\n", "b"},
		{"/pattern", "X-Team: lack\r\n", "a"},
		{"/pattern", "X-Other: black\r\n", "a"},
		{"/pattern2", "X-Other: black\r\n", "b"},
		{"/pattern2", "X-Team: black\r\n", "a"},
		{"/cookie", "Cookie: team=always\r\n", "b"},
		{"/cookie", "Cookie: x=y; team=never\r\n", "a"},
		{"/cookie", "team: always\r\n", "a"},
		{"/none", "X-Team: blue\r\nCookie: team=always\r\n", "404"},
	} {
		ask(c.path, c.header, c.want)
	}
}

// The number of canaries does not add rules, which every request would run through. There is one rule for each
// name of a header.
func TestCanariesAreNoRules(t *testing.T) {
	t.Parallel()
	rules := func(canaries int) int {
		yaml := serviceYAML("shop", "a", 1) + serviceYAML("shop", "b", 2)
		for i := range canaries {
			rules := func(service string) []string { return []string{fmt.Sprintf("h%d.example P / %s", i, service)} }
			yaml += ingress{name: fmt.Sprint("main", i), rules: rules("a")}.yaml() +
				canaryOf(fmt.Sprint("c", i), rules("b"), "canary-by-header", fmt.Sprint("X-Canary team", i), "canary-by-cookie", "canary").yaml()
		}
		cfg := config.Default()
		cfg.HTTPS.Port = 0
		result, _ := compile(t, yaml, cfg)
		front, _, _ := strings.Cut(string(snapshots.Snapshot{Files: result.Draft.Files}.Config()), "\nbackend ")
		return strings.Count(front, "http-request")
	}
	if few, many := rules(2), rules(40); few != many {
		t.Errorf("2 canaries take %d rules, 40 take %d", few, many)
	}
}

// The value of a header is compared with an expression. The values always and never have no meaning then.
func TestCanaryPattern(t *testing.T) {
	t.Parallel()
	e := start(t, common(t)+all([]ingress{
		{name: "main", rules: []string{"pattern.example P / a", "both.example P / a"}},
		canaryOf("c", []string{"pattern.example P / b"}, "canary-by-header", "X-Canary", "canary-by-header-pattern", "^Do[A-Z][a-z]+y$", "canary-by-cookie", "canary"),
		canaryOf("d", []string{"both.example P / b"}, "canary-by-header", "X-Canary yes", "canary-by-header-pattern", "^no"),
	}))
	clean(t, e)
	for _, c := range []struct{ host, header, cookie, want string }{
		{"pattern", "", "", "a"}, {"pattern", "DoCanary", "", "b"}, {"pattern", "docanary", "", "a"}, {"pattern", "DoCanary2", "", "a"}, {"pattern", "x DoCanary", "", "a"},
		{"pattern", "always", "", "a"}, {"pattern", "never", "always", "b"}, {"pattern", "DoCanary", "never", "b"},
		{"pattern", "Do" + strings.Repeat("x", 8000) + "y", "", "a"}, {"pattern", "DoCa" + strings.Repeat("n", 800) + "y", "", "b"},
		{"both", "yes", "", "b"}, {"both", "no", "", "a"},
	} {
		request := fmt.Sprintf("GET / HTTP/1.1\r\nHost: %s.example\r\nConnection: close\r\n", c.host)
		if c.header != "" {
			request += "X-Canary: " + c.header + "\r\n"
		}
		if c.cookie != "" {
			request += "Cookie: canary=" + c.cookie + "\r\n"
		}
		if got := raw(t, e.http, request+"\r\n"); got != c.want {
			t.Errorf("%s, header %.40q, cookie %q: %s, want %s", c.host, c.header, c.cookie, got, c.want)
		}
	}
}
