package routingtest

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/hapsnap/hapsnap/compiler/config"
	"github.com/hapsnap/hapsnap/compiler/diag"
)

// movedOption is an option of an Ingress. named is what the report says if its routes differ or are closed, and
// "" if its routes behave the same.
type movedOption struct {
	options []string
	named   string
}

var movedOptions = []movedOption{
	{[]string{"ssl-redirect", "true"}, ""}, {[]string{"ssl-redirect", "302"}, ""},
	{[]string{"redirect", "https://new.example 301"}, ""}, {[]string{"redirect", "http://new.example:8080"}, ""},
	{[]string{"rewrite-path", "/new"}, ""}, {[]string{"rewrite-path", "/"}, ""}, {[]string{"rewrite-host", "inner.example"}, ""},
	{[]string{"request-headers", "set X-Set one\nremove X-Gone\nadd X-Add two"}, ""}, {[]string{"response-headers", "set X-From filter\nremove Server"}, ""},
	{[]string{"hsts", "31536000 includeSubDomains"}, ""}, {[]string{"timeout-server", "30s"}, ""}, {[]string{"timeout-server", "2d"}, ""},
	{[]string{"cors-allow-origin", "*"}, ""}, {[]string{"redirect-www", "true"}, ""},
	{[]string{"cors-allow-origin", "https://a.example", "cors-allow-credentials", "true", "cors-expose-headers", "X-From"}, "cors-allow-origin is moved with a difference"},
	{[]string{"cors-allow-origin", "https://*.a.example"}, "cors-allow-origin cannot be moved as it is"},
	{[]string{"app-root", "/app"}, "app-root is moved with a difference"}, {[]string{"redirect", "/elsewhere"}, "redirect is moved with a difference"},
	{[]string{"redirect", "https://new.example/?a=b"}, "redirect cannot be moved"},
	{[]string{"rewrite-path", `^/a/(.*) /z/\1`}, "rewrite-path cannot be moved"}, {[]string{"rewrite-host", "inner.example:8080"}, "rewrite-host cannot be moved"},
	{[]string{"request-headers", "copy X-Was host"}, "request-headers cannot be moved"}, {[]string{"request-headers", "set X-Set one\nadd X-Set two"}, "request-headers cannot be moved"},
	{[]string{"balance", "leastconn"}, "balance cannot be moved"}, {[]string{"retries", "0"}, "retries cannot be moved"}, {[]string{"affinity", "cookie"}, "affinity cannot be moved"},
	{[]string{"intercept-errors", "404"}, "intercept-errors cannot be moved"}, {[]string{"rewrite-cookie-path", "/a /b"}, "rewrite-cookie-path cannot be moved"},
	{[]string{"forwarded-for", "off"}, "forwarded-for cannot be moved"}, {[]string{"backend-protocol", "h2"}, "backend-protocol cannot be moved"},
	{[]string{"backend-protocol", "h1-tls"}, "backend-protocol cannot be moved"}, {[]string{"fallback-service", "b"}, "fallback-service cannot be moved"},
	{[]string{"send-proxy-protocol", "v2"}, "send-proxy-protocol cannot be moved"}, {[]string{"normalize-paths", "false"}, "normalize-paths"},
	{[]string{"auth-basic", "staff"}, "auth-basic cannot be moved"}, {[]string{"allow-list", "192.0.2.0/24"}, "allow-list cannot be moved"}, {[]string{"allow-list", "127.0.0.0/8"}, "allow-list cannot be moved"},
	{[]string{"deny-list", "127.0.0.0/8"}, "deny-list cannot be moved"}, {[]string{"rate-limit", "1", "rate-limit-period", "1h"}, "rate-limit cannot be moved"},
	{[]string{"rate-limit-connections", "5"}, "rate-limit-connections cannot be moved"}, {[]string{"max-body-size", "1"}, "max-body-size cannot be moved"},
	{[]string{"auth-url", "http://b.shop.svc:80/check"}, "auth-url cannot be moved"}, {[]string{"allow-list", "nonsense"}, "allow-list"}, {[]string{"client-ca-secret", "clients"}, "client-ca-secret cannot be moved"},
}

// movedIngress is an Ingress with a host of its own.
type movedIngress struct {
	ingress
	named []string
}

// withOptions returns an Ingress with random options, at most one of each kind.
func (g generator) withOptions(n int) movedIngress {
	host := fmt.Sprintf("h%d.example", n)
	out := movedIngress{ingress: ingress{name: fmt.Sprint("i", n), rules: []string{host + " P / a"}}}
	for _, rule := range []string{" P /a b", " E /exact a", " P /a/b/c a", " E /a b", " I /i b"} {
		if g.one(2) {
			out.rules = append(out.rules, host+rule)
		}
	}
	if g.one(2) {
		out.tls = []string{"tls " + host}
	}
	options := map[string]bool{}
	var all []string
	for range g.IntN(4) {
		o := movedOptions[g.IntN(len(movedOptions))]
		if n < len(movedOptions) && len(all) == 0 {
			o = movedOptions[n] // so that each option is used at least once
		}
		if options[o.options[0]] {
			continue
		}
		options[o.options[0]] = true
		all = append(all, o.options...)
		if o.named != "" {
			out.named = append(out.named, o.named)
		}
	}
	out.annotations = annotated(all...)
	return out
}

// movedRequests are the requests to each host.
var movedRequests = []string{
	"GET /", "GET /a", "GET /a/b?x=1", "GET /a/b/c/d", "GET /exact", "GET /i/x", "GET //a/./x", "GET /none%20x", "GET /a/..%2fexact", "POST /a\nContent-Length: 3\n\nabc",
	"GET /\nOrigin: https://a.example", "GET /\nOrigin: https://x.a.example", "OPTIONS /a\nOrigin: https://a.example\nAccess-Control-Request-Method: PUT",
	"GET /\nX-Set: client\nX-Gone: client\nX-Add: client\nX-Was: client",
}

// seenOf returns what a client and a server see of a request.
func seenOf(r reply, ports ...string) string {
	var b strings.Builder
	location := r.Header.Get("Location")
	for _, port := range ports { // a redirect names the port of the listener, unless it is the default of the scheme
		location = strings.Replace(location, port, "", 1)
	}
	fmt.Fprintln(&b, r.StatusCode, location)
	for name, values := range r.Header {
		if strings.HasPrefix(name, "Access-Control-") || slices.Contains([]string{"Strict-Transport-Security", "X-From", "Server", "Set-Cookie"}, name) {
			fmt.Fprintln(&b, name, values)
		}
	}
	lines := strings.Split(b.String(), "\n")
	slices.Sort(lines[1:])
	h := r.seen.Header
	return fmt.Sprint(strings.Join(lines, "; "), r.seen.Name, " ", r.seen.Method, " ", r.seen.Target, " ", r.seen.Host, h["X-Set"], h["X-Gone"], h["X-Add"], h["X-Was"], h["X-Forwarded-For"])
}

// Ingresses with options become routes that answer the same. Where they do not, the report says so, and a route
// does not serve what its Ingress refuses.
func TestRandomOptionsMoved(t *testing.T) {
	t.Parallel()
	ca := newAuthority(t, "ca")
	eachSeed(t, 2, 8, func(g generator) string {
		t := g.t
		objects := serviceYAML("shop", "a", mirror(t, "a", nil)) + serviceYAML("shop", "b", mirror(t, "b", nil)) + users("staff", "alice:"+horse) +
			authoritySecret("clients", ca.pem) + secretOf(t, "tls")
		var ingresses []movedIngress
		for n := range 2 * len(movedOptions) {
			i := g.withOptions(n)
			ingresses = append(ingresses, i)
			objects += i.yaml()
		}
		var m moved
		e := startEdited(t, func(cfg *config.Config) string {
			cfg.GatewayAPI.Enabled = true
			m = move(t, *cfg, "web", objects)
			return gatewayClass + objects + m.yaml
		})
		_, plain, _ := strings.Cut(m.http, ":")
		_, secure, _ := strings.Cut(m.https, ":")
		alike, other := 0, 0
		for _, i := range ingresses {
			for _, named := range i.named {
				redirected := strings.Contains(i.annotations, "hapsnap.dev/redirect:") // then options for servers have no effect
				// If a route is closed as a whole, the report says no more about it.
				closed := m.says(i.name, "closed, and answer") || m.says("host "+strings.Fields(i.rules[0])[0], "its routes are closed")
				if !m.says(i.name, named) && !redirected && !closed && !m.says(i.name, "what was answered 503 is answered 500") {
					t.Errorf("the report does not say of %s that %q:\n%s", i.name, named, i.annotations)
				}
			}
			for _, d := range m.found {
				if d.Object.Name == i.name && d.Severity == diag.Error && len(i.named) == 0 {
					t.Errorf("the report says too much: %v", d)
				}
			}
			host := strings.Fields(i.rules[0])[0]
			requests := movedRequests
			if strings.Contains(i.annotations, "-protocol") { // the server does not understand the protocol, and HAProxy waits for a timeout
				requests = requests[:1]
			}
			for _, request := range requests {
				for _, over := range []bool{false, true}[:1+min(len(i.tls), 1)] {
					line, rest, _ := strings.Cut(request, "\n")
					text := strings.TrimSuffix(line+" HTTP/1.1\nHost: "+host+"\n"+rest, "\n")
					before, after := e.send(t, over, text), m.send(t, over, host, text)
					a, b := seenOf(before), seenOf(after, ":"+plain, ":"+secure)
					switch {
					case a == b:
						alike++
					case len(i.named) == 0:
						t.Errorf("%s, TLS %v, %q:\n%s\nbefore %s\nafter  %s\n%s", i.name, over, request, i.annotations, a, b, m.yaml)
						return objects
					case after.StatusCode < 400 && before.StatusCode >= 400 && !answersMore(i.named):
						t.Errorf("%s, TLS %v, %q is served:\n%s\nbefore %s\nafter  %s", i.name, over, request, i.annotations, a, b)
					default:
						other++
					}
				}
			}
		}
		t.Logf("%d requests were answered alike, and %d otherwise, as the report says", alike, other)
		return ""
	})
}

// answersMore reports whether one of the options makes an Ingress answer errors that its routes do not.
func answersMore(named []string) bool {
	return slices.ContainsFunc(named, func(name string) bool {
		return strings.HasPrefix(name, "intercept-errors") || strings.HasPrefix(name, "cors-allow-origin is")
	})
}
