package routingtest

import (
	"fmt"
	"net/url"
	"strings"
	"testing"

	"github.com/hapsnap/hapsnap/compiler/config"
	"github.com/hapsnap/hapsnap/compiler/diag"
)

// optioned returns an Ingress with annotations, given in pairs without their prefix. Its whole host is for
// Service "a".
func optioned(name string, options ...string) ingress {
	return ingress{name: name, annotations: annotated(options...), rules: []string{name + ".example P / a"}}
}

// annotated returns annotations in YAML.
func annotated(options ...string) string {
	var lines []string
	for i := 0; i < len(options); i += 2 {
		lines = append(lines, fmt.Sprintf("hapsnap.dev/%s: %q", options[i], options[i+1]))
	}
	return strings.Join(lines, "\n    ")
}

// clean fails if a compile reported anything.
func clean(tb testing.TB, e edge) {
	tb.Helper()
	for _, d := range e.result.Diagnostics {
		tb.Errorf("unexpected: %s", d)
	}
}

func TestRedirects(t *testing.T) {
	t.Parallel()
	services := serviceYAML("shop", "a", mirror(t, "a", nil))
	e := start(t, services+all([]ingress{
		optioned("tls", "ssl-redirect", "true"),
		optioned("tls302", "ssl-redirect", "302"),
		optioned("off", "ssl-redirect", "false"),
		optioned("host", "redirect", "https://new.example:8443"),
		optioned("fixed", "redirect", "https://new.example/it?a=b%20c 308"),
		optioned("path", "redirect", "/elsewhere 301"),
		optioned("root", "app-root", "/app"),
	}))
	clean(t, e)
	for _, c := range []struct {
		host, target string
		status       int
		location     string
	}{
		{"tls.example", "/x?y=%20", 308, "https://tls.example/x?y=%20"},
		{"tls.example:8080", "/", 308, "https://tls.example/"},
		{"tls302.example", "/", 302, "https://tls302.example/"},
		{"off.example", "/", 200, ""},
		{"host.example", "/x?y", 302, "https://new.example:8443/x?y"},
		{"fixed.example", "/x?y", 308, "https://new.example/it?a=b%20c"},
		{"path.example", "/x", 301, "/elsewhere"},
		{"root.example", "/", 302, "/app"},
		{"root.example", "/app", 200, ""},
	} {
		got := e.get(t, c.host, c.target)
		if got.StatusCode != c.status || got.Header.Get("Location") != c.location {
			t.Errorf("%s%s: %d %q, want %d %q", c.host, c.target, got.StatusCode, got.Header.Get("Location"), c.status, c.location)
		}
	}
	if got := e.getTLS(t, "tls.example", "/"); got.StatusCode != 200 {
		t.Errorf("over TLS: %d", got.StatusCode)
	}
	if got := e.send(t, false, "GET /x HTTP/1.0\nX: y"); got.StatusCode == 200 {
		t.Error("a request without a host was served")
	}
}

func TestRewrites(t *testing.T) {
	t.Parallel()
	services := serviceYAML("shop", "a", mirror(t, "a", nil))
	prefix := optioned("prefix", "rewrite-path", "/new")
	prefix.rules = []string{"prefix.example P /a a", "prefix.example P /a/b.c a", "other.example P /a a", "prefix.example E /exact a", "other.example E /a/b.c/d a"}
	root := optioned("root", "rewrite-path", "/")
	root.rules = []string{"root.example P /strip a"}
	all := all([]ingress{
		prefix, root,
		optioned("whole", "rewrite-path", "/base"),
		optioned("regex", "rewrite-path", `^/v(\d+)/(.*)$ /api/\2/100%25/v\1`),
		optioned("host", "rewrite-host", "internal.example:81"),
	})
	e := start(t, services+all)
	clean(t, e)
	for _, c := range []struct{ host, target, want string }{
		{"prefix.example", "/a", "/new"},
		{"prefix.example", "/a/", "/new/"},
		{"prefix.example", "/a/x?q=/a", "/new/x?q=/a"},
		{"prefix.example", "/a/b.c/d", "/new/d"},
		{"prefix.example", "/a/bxc/d", "/new/bxc/d"},
		{"other.example", "/a/b.c", "/new/b.c"},
		{"other.example", "/a/b.c/d", "/new"},
		{"prefix.example", "/exact", "/new"},
		{"root.example", "/strip", "/"},
		{"root.example", "/strip/", "/"},
		{"root.example", "/strip/x", "/x"},
		{"whole.example", "/x", "/base/x"},
		{"regex.example", "/v2/x/y?z", "/api/x/y/100%25/v2?z"},
		{"regex.example", "/other", "/other"},
		{"host.example", "/x", "/x"},
	} {
		if got := e.get(t, c.host, c.target); got.seen.Target != c.want {
			t.Errorf("%s%s: server got %q, want %q (status %d)", c.host, c.target, got.seen.Target, c.want, got.StatusCode)
		}
	}
	// The path of a URL without one is rewritten, too. HAProxy 3.0 passes a URL on as one, and 2.6 its path alone.
	target := e.get(t, "whole.example", "http://whole.example").seen.Target
	if got, err := url.Parse(target); err != nil || got.Path != "/base/" {
		t.Errorf("of a URL without a path, the server got %q: %v", target, err)
	}
	if got := e.get(t, "host.example", "/"); got.seen.Host != "internal.example:81" {
		t.Errorf("rewrite-host: server got %q", got.seen.Host)
	}
}

func TestMatching(t *testing.T) {
	t.Parallel()
	exact := optioned("exact", "path-type-default", "Exact")
	exact.rules = []string{"exact.example I /foo a"}
	e := start(t, common(t)+all([]ingress{
		exact,
		optioned("alias", "server-alias", "www.alias.example, *.wild.example"),
		{name: "late", age: 9, rules: []string{"www.alias.example P /late b"}},
	}))
	clean(t, e)
	for _, c := range []struct{ host, target, want string }{
		{"exact.example", "/foo", "a"}, {"exact.example", "/foo/x", "404"},
		{"alias.example", "/", "a"}, {"www.alias.example", "/x", "a"}, {"www.alias.example", "/late", "b"},
		{"x.wild.example", "/", "a"}, {"x.alias.example", "/", "404"},
	} {
		if got := e.http11(t, "GET", c.host, c.target); got != c.want {
			t.Errorf("%s%s: %s, want %s", c.host, c.target, got, c.want)
		}
	}
}

func TestHeaders(t *testing.T) {
	t.Parallel()
	services := serviceYAML("shop", "a", mirror(t, "a", nil))
	e := startWith(t, services+all([]ingress{
		optioned("request", "request-headers", "set X-Set it's \"100%\" $HOME \\ #1 %[src]\nadd X-Add b\nremove X-Gone"),
		optioned("response", "response-headers", "set X-From edge\nadd X-More 1\nremove Server"),
		optioned("closed", "response-headers", "set X-From edge", "deny-list", "127.0.0.0/8"),
		optioned("append", "forwarded-for", "append"),
		optioned("keep", "forwarded-for", "keep"),
		optioned("off", "forwarded-for", "off"),
		optioned("replace", "forwarded-for", "replace"),
		optioned("hsts", "hsts", "31536000 includeSubDomains"),
	}), func(c *config.Config) { c.Forwarded.Trusted = []string{"127.0.0.0/8"} })
	clean(t, e)
	h := e.get(t, "request.example", "/", "X-Set: a", "X-Set: b", "X-Add: a", "X-Gone: x").seen.Header
	for name, want := range map[string]string{"X-Set": `it's "100%" $HOME \ #1 %[src]`, "X-Add": "a|b", "X-Gone": ""} {
		if got := strings.Join(h.Values(name), "|"); got != want {
			t.Errorf("request %s: %q, want %q", name, got, want)
		}
	}
	answer := e.get(t, "response.example", "/").Header
	for name, want := range map[string]string{"X-From": "edge", "X-More": "1", "Server": ""} {
		if got := strings.Join(answer.Values(name), "|"); got != want {
			t.Errorf("response %s: %q, want %q", name, got, want)
		}
	}
	if got := e.get(t, "closed.example", "/"); got.StatusCode != 403 || got.Header.Get("X-From") != "edge" {
		t.Errorf("HAProxy's own answer: %d, X-From %q", got.StatusCode, got.Header.Get("X-From"))
	}
	for host, want := range map[string]string{"append": "203.0.113.9, 127", "keep": "203.0.113.9", "off": "", "replace": "127"} {
		got := strings.Join(e.get(t, host+".example", "/", "X-Forwarded-For: 203.0.113.9").seen.Header.Values("X-Forwarded-For"), "|")
		if !strings.HasPrefix(got, want) || (want == "" && got != "") || (host == "keep" && got != want) {
			t.Errorf("forwarded-for %s: server got %q", host, got)
		}
	}
	if got := e.get(t, "keep.example", "/").seen.Header.Get("X-Forwarded-For"); !strings.HasPrefix(got, "127.") {
		t.Errorf("forwarded-for keep of none: server got %q", got)
	}
	if got := e.getTLS(t, "hsts.example", "/").Header.Get("Strict-Transport-Security"); got != "max-age=31536000; includeSubDomains" {
		t.Errorf("hsts: %q", got)
	}
	if got := e.get(t, "hsts.example", "/").Header.Get("Strict-Transport-Security"); got != "" {
		t.Errorf("hsts in the clear: %q", got)
	}
}

func TestCORS(t *testing.T) {
	t.Parallel()
	services := serviceYAML("shop", "a", mirror(t, "a", nil))
	e := start(t, services+all([]ingress{
		optioned("some", "cors-allow-origin", "https://a.example, https://*.b.example", "cors-allow-methods", "GET, PUT",
			"cors-allow-headers", "X-Token", "cors-expose-headers", "X-Total", "cors-allow-credentials", "true", "cors-max-age", "60"),
		optioned("any", "cors-allow-origin", "*"),
		optioned("pattern", "cors-allow-origin-pattern", "https://[a-z0-9-]+\\.b\\.example\nhttps://c|https://d", "cors-allow-methods", "GET"),
	}))
	clean(t, e)
	for origin, allowed := range map[string]bool{
		"https://x-1.b.example": true, "https://c": true, "https://d": true, "https://x.b.example.evil": false, "https://xb.example": false, "xhttps://c": false, "https://c.evil": false,
		"https://" + strings.Repeat("x", 1024) + ".b.example": false, "https://" + strings.Repeat("x", 200) + ".b.example": true, "null": false,
	} {
		if got := e.get(t, "pattern.example", "/", "Origin: "+origin).Header.Get("Access-Control-Allow-Origin"); (got == origin) != allowed || !allowed && got != "" {
			t.Errorf("%.60s: allowed %.60q", origin, got)
		}
	}
	for origin, allowed := range map[string]bool{
		"https://a.example": true, "https://x.b.example": true, "https://b.example": false, "https://x.y.b.example": false,
		"http://a.example": false, "https://evil.example": false, "https://x.b.example.evil.example": false, "null": false,
	} {
		want := ""
		if allowed {
			want = origin
		}
		got := e.get(t, "some.example", "/", "Origin: "+origin)
		if a := got.Header.Get("Access-Control-Allow-Origin"); a != want || got.seen.Name != "a" {
			t.Errorf("%s: allowed %q, answered by %q", origin, a, got.seen.Name)
		}
		pre := e.send(t, false, "OPTIONS / HTTP/1.1\nHost: some.example\nAccess-Control-Request-Method: PUT\nOrigin: "+origin)
		if a := pre.Header.Get("Access-Control-Allow-Origin"); a != want || (pre.StatusCode == 204) != allowed {
			t.Errorf("preflight of %s: %d, allowed %q", origin, pre.StatusCode, a)
		}
	}
	pre := e.send(t, false, "OPTIONS /x HTTP/1.1\nHost: some.example\nAccess-Control-Request-Method: PUT\nOrigin: https://a.example").Header
	for name, want := range map[string]string{
		"Access-Control-Allow-Methods": "GET, PUT", "Access-Control-Allow-Headers": "X-Token", "Access-Control-Max-Age": "60",
		"Access-Control-Allow-Credentials": "true", "Access-Control-Expose-Headers": "", "Vary": "Origin",
	} {
		if got := pre.Get(name); got != want {
			t.Errorf("preflight %s: %q, want %q", name, got, want)
		}
	}
	if got := e.get(t, "some.example", "/", "Origin: https://a.example").Header.Get("Access-Control-Expose-Headers"); got != "X-Total" {
		t.Errorf("expose: %q", got)
	}
	if got := e.get(t, "any.example", "/", "Origin: https://whoever.example").Header.Get("Access-Control-Allow-Origin"); got != "*" {
		t.Errorf("any origin: %q", got)
	}
	if got := e.send(t, false, "OPTIONS / HTTP/1.1\nHost: any.example"); got.seen.Method != "OPTIONS" {
		t.Errorf("OPTIONS that is no preflight: %d", got.StatusCode)
	}
}

// A snippet applies to the requests of its Ingress, if its namespace may have snippets and HAProxy accepts it.
// Otherwise the routes of that Ingress are closed, and no others.
func TestSnippet(t *testing.T) {
	t.Parallel()
	elsewhere := optioned("elsewhere", "snippet", "http-request set-header X-A b")
	elsewhere.namespace, elsewhere.rules = "other", []string{"elsewhere.example P / e"}
	yaml := serviceYAML("shop", "a", mirror(t, "a", nil)) + serviceYAML("other", "e", mirror(t, "e", nil)) + all([]ingress{
		optioned("good", "snippet", "http-request deny deny_status 429 if { path_beg /internal }\nhttp-request set-header X-Note 'a # b'", "rewrite-path", "/y"),
		optioned("refused", "snippet", "http-request teleport"),
		optioned("server", "snippet", "server evil 127.0.0.1:1"),
		optioned("plain", "balance", "leastconn"), elsewhere,
	})
	e := startWith(t, yaml, func(c *config.Config) { c.Snippets.Namespaces = config.Namespaces{"shop"} })
	for _, c := range []struct {
		host, path string
		status     int
		note       string
	}{
		{"good.example", "/internal", 429, ""},
		{"good.example", "/x", 200, "a # b"},
		{"refused.example", "/", 503, ""},
		{"server.example", "/", 503, ""},
		{"elsewhere.example", "/", 503, ""},
		{"plain.example", "/internal", 200, ""},
	} {
		got := e.get(t, c.host, c.path)
		if got.StatusCode != c.status || got.seen.Header.Get("X-Note") != c.note {
			t.Errorf("%s%s: %d, X-Note %q, want %d, %q", c.host, c.path, got.StatusCode, got.seen.Header.Get("X-Note"), c.status, c.note)
		}
	}
	for _, name := range []string{"refused", "server"} {
		reportedOn(t, e, diag.Object{Kind: "Ingress", Namespace: "shop", Name: name})
	}
	reportedOn(t, e, diag.Object{Kind: "Ingress", Namespace: "other", Name: "elsewhere"})
}

// classYAML returns an IngressClass for us. parameters is "" or the name of a ConfigMap in the namespace edge.
func classYAML(name, parameters string, isDefault bool) string {
	var b strings.Builder
	fmt.Fprintf(&b, "---\napiVersion: networking.k8s.io/v1\nkind: IngressClass\nmetadata:\n  name: %s\n", name)
	if isDefault {
		b.WriteString("  annotations: {ingressclass.kubernetes.io/is-default-class: \"true\"}\n")
	}
	b.WriteString("spec:\n  controller: hapsnap.dev/ingress-controller\n")
	if parameters != "" {
		fmt.Fprintf(&b, "  parameters: {kind: ConfigMap, scope: Namespace, namespace: edge, name: %s}\n", parameters)
	}
	return b.String()
}

// defaultsYAML returns a ConfigMap in the namespace edge, with keys and values given in pairs.
func defaultsYAML(name string, data ...string) string {
	var b strings.Builder
	fmt.Fprintf(&b, "---\napiVersion: v1\nkind: ConfigMap\nmetadata: {namespace: edge, name: %s}\ndata:\n", name)
	for i := 0; i < len(data); i += 2 {
		fmt.Fprintf(&b, "  %s: %q\n", data[i], data[i+1])
	}
	return b.String()
}

// An Ingress has the parameters of its class, unless the Ingress or its Service has its own. An Ingress without
// a class has those of the default class.
func TestClassParameters(t *testing.T) {
	t.Parallel()
	of := func(class string, i ingress) ingress { i.class = class; return i }
	port := mirror(t, "a", nil)
	own := strings.Replace(serviceYAML("shop", "a", port), "name: a}", "name: a, annotations: {hapsnap.dev/deny-list: 192.0.2.0/24}}", 1)
	e := start(t, strings.ReplaceAll(own, "name: a", "name: b")+serviceYAML("shop", "a", port)+
		classYAML("hapsnap", "defaults", false)+classYAML("plain", "", false)+classYAML("unnamed", "others", true)+
		defaultsYAML("defaults", "response-headers", "set X-From class", "deny-list", "127.0.0.0/8")+
		defaultsYAML("others", "response-headers", "set X-From default-class")+all([]ingress{
		optioned("inherits"),
		optioned("own", "response-headers", "set X-From Ingress", "deny-list", "192.0.2.0/24"),
		{name: "service", rules: []string{"service.example P / b"}},
		of("plain", optioned("plain")),
		of("none", optioned("none")),
		{name: "annotated", class: "none", annotations: "kubernetes.io/ingress.class: hapsnap", rules: []string{"annotated.example P / a"}},
	}))
	clean(t, e)
	for host, want := range map[string]struct {
		status int
		from   string
	}{
		"inherits": {403, "class"}, "own": {200, "Ingress"}, "service": {200, "class"},
		"plain": {200, "server"}, "none": {200, "default-class"}, "annotated": {403, "class"},
	} {
		if got := e.get(t, host+".example", "/"); got.StatusCode != want.status || got.Header.Get("X-From") != want.from {
			t.Errorf("%s: %d from %q, want %d from %q", host, got.StatusCode, got.Header.Get("X-From"), want.status, want.from)
		}
	}
}

// If the protection of a class cannot be read, its routes are closed. Other routes do not get their requests.
// The same holds for an Ingress that is left out for another reason.
func TestClassParametersFailClosed(t *testing.T) {
	t.Parallel()
	admin := func(class string) ingress {
		return ingress{name: class, class: class, rules: []string{"open.example P /" + class + " a"}}
	}
	refused := admin("protecting")
	refused.rules = append(refused.rules, "UPPER_case!.example P / a")
	e := start(t, serviceYAML("shop", "a", mirror(t, "a", nil))+
		classYAML("plain", "", false)+classYAML("missing", "gone", false)+classYAML("malformed", "malformed", false)+
		classYAML("protecting", "protecting", false)+classYAML("harmless", "harmless", false)+
		defaultsYAML("malformed", "allow-list", "10.0.0.0/33")+defaultsYAML("protecting", "allow-list", "127.0.0.0/8")+
		defaultsYAML("harmless", "timeout-server", "soon")+all([]ingress{
		{name: "open", class: "plain", rules: []string{"open.example P / a"}},
		admin("missing"), admin("malformed"), admin("harmless"), refused,
	}))
	said := map[string]bool{}
	for _, d := range e.result.Diagnostics {
		if d.Severity == diag.Error {
			said[d.Object.String()] = true
		}
	}
	for _, object := range []string{"IngressClass missing", "ConfigMap edge/malformed", "ConfigMap edge/harmless", "Ingress shop/protecting"} {
		if !said[object] {
			t.Errorf("nothing is said of %s", object)
		}
	}
	for path, want := range map[string]int{"/": 200, "/missing": 503, "/malformed": 503, "/protecting": 503, "/harmless": 200} {
		if got := e.get(t, "open.example", path); got.StatusCode != want {
			t.Errorf("%s: %d, want %d", path, got.StatusCode, want)
		}
	}
}
