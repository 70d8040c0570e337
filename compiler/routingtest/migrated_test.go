package routingtest

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/hapsnap/hapsnap/compiler/migrate"
)

// migrated is an Ingress of ingress-nginx, a request, and the answer of ingress-nginx to it.
type migrated struct {
	name        string
	annotations []string // names and values alternate
	paths       string   // of the Service a; / if empty
	request     string   // such as "GET /x", and header lines; the case sets the host
	status      int
	answer      map[string]string // headers; "" if there is none
	target      string            // the target that the endpoint gets
	got         map[string]string // headers that the endpoint gets; "" if there is none
}

func (m migrated) yaml() string {
	var b strings.Builder
	fmt.Fprintf(&b, "---\napiVersion: networking.k8s.io/v1\nkind: Ingress\nmetadata:\n  namespace: shop\n  name: %s\n  annotations:\n    of: shop\n", m.name)
	for i := 0; i < len(m.annotations); i += 2 {
		fmt.Fprintf(&b, "    nginx.ingress.kubernetes.io/%s: %q\n", m.annotations[i], m.annotations[i+1])
	}
	fmt.Fprintf(&b, "spec:\n  ingressClassName: nginx\n  rules:\n  - host: %s.example\n    http:\n      paths:\n", m.name)
	for path := range strings.FieldsSeq(m.paths) {
		fmt.Fprintf(&b, "      - {path: %q, pathType: ImplementationSpecific, backend: {service: {name: a, port: {number: 80}}}}\n", path)
	}
	return b.String()
}

// migratedMore are cases whose options work differently from those of ingress-nginx.
var migratedMore = []migrated{
	// satisfy, snippets, error pages, and variables with names of the Ingress.
	{name: "satisfied", annotations: []string{"whitelist-source-range", "127.0.0.0/8", "auth-type", "basic", "auth-secret", "staff", "satisfy", "any"}, request: "GET /"},
	{name: "not-satisfied", annotations: []string{"whitelist-source-range", "10.0.0.0/8", "auth-type", "basic", "auth-secret", "staff", "satisfy", "any"}, request: "GET /", status: 401},
	{name: "satisfied-by-password", annotations: []string{"whitelist-source-range", "10.0.0.0/8", "auth-type", "basic", "auth-secret", "staff", "satisfy", "any"}, request: "GET /\n" + as("alice", "correct horse"), got: map[string]string{"Authorization": ""}},
	{name: "needs-both", annotations: []string{"whitelist-source-range", "127.0.0.0/8", "auth-type", "basic", "auth-secret", "staff"}, request: "GET /", status: 401},
	{name: "snippet-denies", annotations: []string{"server-snippet", "deny all;"}, request: "GET /", status: 403},
	{name: "snippet-returns", annotations: []string{"configuration-snippet", "return 403;"}, request: "GET /", status: 403},
	{name: "snippet-admits", annotations: []string{"configuration-snippet", "allow 127.0.0.1; deny all;"}, request: "GET /"},
	{name: "snippet-admits-others", annotations: []string{"configuration-snippet", "allow 10.0.0.0/8; deny all;"}, request: "GET /", status: 403},
	{name: "snippet-spares", annotations: []string{"configuration-snippet", "deny 10.0.0.0/8;"}, request: "GET /"},
	{name: "snippet-leads", annotations: []string{"configuration-snippet", "return 302 https://new.example$request_uri;"}, request: "GET /x?y=1", status: 302, answer: map[string]string{"Location": "https://new.example/x?y=1"}},
	{name: "snippet-names", annotations: []string{"configuration-snippet", "proxy_set_header X-To $service_name.$namespace:$service_port; more_set_headers \"X-Host: $host\";"}, request: "GET /", got: map[string]string{"X-To": "a.shop:80"}, answer: map[string]string{"X-Host": "snippet-names.example"}},
	{name: "app-root-url", annotations: []string{"app-root", "https://x.example/app"}, request: "GET /", status: 302, answer: map[string]string{"Location": "/app"}},
	{name: "app-root-odd", annotations: []string{"app-root", "app"}, request: "GET /"},
	{name: "errors-of-redirect", annotations: []string{"custom-http-errors", "418", "permanent-redirect", "https://p.example"}, request: "GET /", status: 301},
	{name: "www", annotations: []string{"from-to-www-redirect", "true"}, request: "GET /"},
	{name: "no-tls-there", annotations: []string{"proxy-ssl-secret", "shop/gone", "proxy-ssl-verify", "on"}, request: "GET /"},
	{name: "ciphers", annotations: []string{"ssl-ciphers", "HIGH", "ssl-prefer-server-ciphers", "true"}, request: "GET /"},
	{name: "errors", annotations: []string{"custom-http-errors", "404,503"}, request: "GET /"},
	{name: "no-errors", annotations: []string{"custom-http-errors", "404", "disable-proxy-intercept-errors", "true"}, request: "GET /"},
}

// Requests after the migration get the answers of ingress-nginx.
func TestMigratedFromIngressNginx(t *testing.T) {
	t.Parallel()
	const methods, headers = "GET, PUT, POST, DELETE, PATCH, OPTIONS", "DNT, Keep-Alive, User-Agent, X-Requested-With, If-Modified-Since, Cache-Control, Content-Type, Range, Authorization"
	const preflight = "OPTIONS /\nOrigin: https://a.example\nAccess-Control-Request-Method: PUT"
	cases := []migrated{
		{name: "plain", request: "GET /x?y=1", target: "/x?y=1"},
		// Redirects lead to exactly their URL.
		{name: "permanent", annotations: []string{"permanent-redirect", "https://new.example"}, request: "GET /x?y=1", status: 301, answer: map[string]string{"Location": "https://new.example/"}},
		{name: "permanent-code", annotations: []string{"permanent-redirect", "https://new.example/a", "permanent-redirect-code", "308"}, request: "GET /x", status: 308, answer: map[string]string{"Location": "https://new.example/a"}},
		{name: "permanent-odd", annotations: []string{"permanent-redirect", "https://new.example/a", "permanent-redirect-code", "200"}, request: "GET /x", status: 301},
		{name: "temporal", annotations: []string{"temporal-redirect", "https://new.example"}, request: "GET /x", status: 302, answer: map[string]string{"Location": "https://new.example/"}},
		{name: "both", annotations: []string{"temporal-redirect", "https://t.example", "permanent-redirect", "https://p.example"}, request: "GET /", status: 302, answer: map[string]string{"Location": "https://t.example/"}},
		{name: "request-uri", annotations: []string{"permanent-redirect", "https://new.example$request_uri"}, request: "GET /x?y=1", status: 301, answer: map[string]string{"Location": "https://new.example/x?y=1"}},
		{name: "force", annotations: []string{"force-ssl-redirect", "true"}, request: "GET /x", status: 308, answer: map[string]string{"Location": "https://force.example/x"}},
		{name: "app-root", annotations: []string{"app-root", "/app"}, request: "GET /", status: 302},
		// CORS has the defaults of ingress-nginx.
		{name: "cors", annotations: []string{"enable-cors", "true"}, request: preflight, status: 204, answer: map[string]string{
			"Access-Control-Allow-Origin": "*", "Access-Control-Allow-Methods": methods, "Access-Control-Allow-Headers": headers, "Access-Control-Max-Age": "1728000",
		}},
		{name: "cors-credentials", annotations: []string{"enable-cors", "true", "cors-allow-origin", "https://a.example", "cors-max-age", "60", "cors-allow-methods", "GET"}, request: preflight, status: 204, answer: map[string]string{
			"Access-Control-Allow-Origin": "https://a.example", "Access-Control-Allow-Credentials": "true", "Access-Control-Max-Age": "60", "Access-Control-Allow-Methods": "GET",
		}},
		{name: "cors-other", annotations: []string{"enable-cors", "true", "cors-allow-origin", "https://b.example,"}, request: "GET /\nOrigin: https://a.example", answer: map[string]string{"Access-Control-Allow-Origin": ""}},
		{name: "cors-wildcard", annotations: []string{"enable-cors", "true", "cors-allow-origin", "https://*.a.example:8080"}, request: "GET /\nOrigin: https://b.a.example:8080", answer: map[string]string{"Access-Control-Allow-Origin": "https://b.a.example:8080"}},
		{name: "cors-empty", annotations: []string{"enable-cors", "true", "cors-allow-origin", ""}, request: "GET /\nOrigin: https://a.example", answer: map[string]string{"Access-Control-Allow-Origin": "*"}},
		{name: "cors-scheme", annotations: []string{"enable-cors", "true", "cors-allow-origin", "app://a.example, null"}, request: "GET /\nOrigin: app://a.example", answer: map[string]string{"Access-Control-Allow-Origin": "app://a.example"}},
		{name: "cors-skipped", annotations: []string{"enable-cors", "true", "cors-allow-origin", "a.example, https://b.example"}, request: "GET /\nOrigin: https://b.example", answer: map[string]string{"Access-Control-Allow-Origin": "https://b.example"}},
		{name: "unknown", annotations: []string{"no-such-thing", "true"}, request: "GET /"},
		{name: "cors-off", annotations: []string{"enable-cors", "false"}, request: "GET /\nOrigin: https://a.example", answer: map[string]string{"Access-Control-Allow-Origin": ""}},
		// A target replaces the whole path, unless it equals the path.
		{name: "same-target", annotations: []string{"rewrite-target", "/"}, request: "GET /x/y", target: "/x/y"},
		{name: "one-target", annotations: []string{"rewrite-target", "/"}, paths: "/ /api", request: "GET /x/y", target: "/x/y"},
		{name: "other-target", annotations: []string{"rewrite-target", "/"}, paths: "/ /api", request: "GET /api/y?z", target: "/?z"},
		{name: "target", annotations: []string{"rewrite-target", "/new"}, paths: "/old", request: "GET /old/x?y", target: "/new?y"},
		{name: "rest", annotations: []string{"rewrite-target", "/$2", "use-regex", "true"}, paths: "/old(/|$)(.*)", request: "GET /old/x/y", target: "/x/y"},
		{name: "prefix", annotations: []string{"rewrite-target", "/new", "x-forwarded-prefix", "/old"}, paths: "/old", request: "GET /old", target: "/new", got: map[string]string{"X-Forwarded-Prefix": "/old"}},
		{name: "no-prefix", annotations: []string{"x-forwarded-prefix", "/old"}, request: "GET /old", got: map[string]string{"X-Forwarded-Prefix": ""}},
		{name: "elsewhere", annotations: []string{"rewrite-target", "https://new.example/$1"}, paths: "/(.*)", request: "GET /x?y=1", status: 302, answer: map[string]string{"Location": "https://new.example/x?y=1"}},
		// The limit applies to bodies without a length, too.
		{name: "size", annotations: []string{"proxy-body-size", "1k"}, request: "POST /\nContent-Length: 1025", status: 413},
		{name: "size-chunked", annotations: []string{"proxy-body-size", "1k"}, request: "POST /\nTransfer-Encoding: chunked\n\n" + chunks(100)},
		{name: "size-none", annotations: []string{"proxy-body-size", "0"}, request: "POST /\nTransfer-Encoding: chunked\n\n" + chunks(100_000)},
		// The path of a session cookie is the path of its rule.
		{name: "session", annotations: []string{"affinity", "cookie", "session-cookie-name", "route", "session-cookie-expires", "60"}, paths: "/shop", request: "GET /shop", answer: map[string]string{"Set-Cookie": "; HttpOnly; Path=/shop; Max-Age=60"}},
		{name: "session-path", annotations: []string{"affinity", "cookie", "session-cookie-name", "route", "session-cookie-path", "/p", "session-cookie-secure", "true"}, request: "GET /", answer: map[string]string{"Set-Cookie": "; HttpOnly; Secure; Path=/p"}},
		{name: "session-none", annotations: []string{"session-cookie-name", "route"}, request: "GET /", answer: map[string]string{"Set-Cookie": ""}},
		// Options that are off or empty do nothing.
		{name: "nothing", annotations: []string{"enable-modsecurity", "false", "limit-connections", "0", "from-to-www-redirect", "false", "mirror-target", "", "proxy-redirect-from", "off"}, request: "GET /"},
		{name: "vhost", annotations: []string{"upstream-vhost", "inner.example"}, request: "GET /"},
		{name: "allowed", annotations: []string{"whitelist-source-range", "127.0.0.0/8"}, request: "GET /"},
		{name: "refused", annotations: []string{"allowlist-source-range", "10.0.0.0/8"}, request: "GET /", status: 403},
		{name: "denied", annotations: []string{"denylist-source-range", "127.0.0.0/8"}, request: "GET /", status: 403},
	}
	cases = append(cases, migratedMore...)
	dir := t.TempDir()
	var b strings.Builder
	for i := range cases {
		if cases[i].paths == "" {
			cases[i].paths = "/"
		}
		if cases[i].status == 0 {
			cases[i].status = 200
		}
		b.WriteString(cases[i].yaml())
	}
	if err := os.WriteFile(filepath.Join(dir, "all.yaml"), []byte(b.String()), 0o600); err != nil {
		t.Fatal(err)
	}
	result, err := migrate.Directory(dir, migrate.Options{Class: "hapsnap"})
	if err != nil || len(result.Files) != 1 {
		t.Fatal(err, result.Files)
	}
	if strings.Contains(string(result.Files[0].Content), "ingressClassName: nginx") {
		t.Fatalf("not all moved: %v", result.Findings)
	}
	e := start(t, serviceYAML("shop", "a", mirror(t, "a", nil))+users("staff", "alice:"+horse)+string(result.Files[0].Content))
	clean(t, e)
	for _, m := range cases {
		t.Run(m.name, func(t *testing.T) { m.ask(t, e) })
	}
}

// ask sends the request, and compares the answer and what the endpoint got.
func (m migrated) ask(t *testing.T, e edge) {
	t.Helper()
	line, rest, _ := strings.Cut(m.request, "\n")
	separator := "\n"
	if rest == "" {
		separator = ""
	}
	got := e.send(t, false, line+" HTTP/1.1\nHost: "+m.name+".example"+separator+rest)
	if got.StatusCode != m.status {
		t.Errorf("status %d, want %d", got.StatusCode, m.status)
	}
	if m.target != "" && got.seen.Target != m.target {
		t.Errorf("endpoint was asked for %q, want %q", got.seen.Target, m.target)
	}
	for name, want := range m.answer {
		if value := got.Header.Get(name); !strings.HasSuffix(value, want) || want == "" && value != "" {
			t.Errorf("%s: %q, want %q", name, value, want)
		}
	}
	for name, want := range m.got {
		if value := got.seen.Header.Get(name); value != want {
			t.Errorf("endpoint got %s: %q, want %q", name, value, want)
		}
	}
}
