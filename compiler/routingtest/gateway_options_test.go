package routingtest

import (
	"fmt"
	"strconv"
	"strings"
	"testing"
)

// optionedRoute returns a route of the namespace shop with options for NAME.example, to the Service a.
func optionedRoute(name string, options ...string) string {
	var lines []string
	for i := 0; i < len(options); i += 2 {
		lines = append(lines, fmt.Sprintf("hapsnap.dev/%s: %q", options[i], options[i+1]))
	}
	text := routeYAML("shop", name, name+".example", "  rules:\n  - backendRefs: [{name: a, port: 80}]\n  - {matches: [{path: {value: /away}}], filters: [{type: RequestRedirect, requestRedirect: {hostname: away.example}}]}\n")
	return strings.Replace(text, "namespace: shop}", "namespace: shop, annotations: {"+strings.Join(lines, ", ")+"}}", 1)
}

// The options of a route apply to all its rules, redirects too. They do not apply to other routes with the same
// Gateway, host or Service, whatever their namespace.
func TestGatewayRouteOptions(t *testing.T) {
	t.Parallel()
	_, authPort := startAuth(t)
	grant := "---\napiVersion: gateway.networking.k8s.io/v1\nkind: ReferenceGrant\nmetadata: {name: g, namespace: shop}\nspec: {from: [{group: gateway.networking.k8s.io, kind: HTTPRoute, namespace: tenant}], to: [{group: '', kind: Service}]}\n"
	e, _ := startGateway(t, serviceYAML("shop", "a", mirror(t, "a", nil))+serviceYAML("shop", "auth", authPort)+users("staff", "alice:"+horse)+grant+
		optionedRoute("plain")+
		optionedRoute("ours", "allow-list", "127.0.0.0/8")+optionedRoute("theirs", "allow-list", "10.0.0.0/8")+optionedRoute("denied", "deny-list", "127.0.0.0/8")+
		optionedRoute("basic", "auth-basic", "staff")+optionedRoute("asked", "auth-url", "http://auth/check")+
		optionedRoute("limited", "rate-limit", "2", "rate-limit-period", "1h")+optionedRoute("small", "max-body-size", "10")+
		optionedRoute("headers", "response-headers", "set X-Said yes", "hsts", "5")+
		optionedRoute("nobody", "auth-basic", "gone")+
		optionedRoute("foreign", "client-ca-secret", "ca")+optionedRoute("lost", "allow-list", "@gone/list")+
		routeYAML("tenant", "below", "theirs.example", "  rules:\n  - {matches: [{path: {value: /tenant}}], backendRefs: [{name: a, namespace: shop, port: 80}]}\n"))
	for i, c := range []struct {
		host, request string
		want          int
	}{
		{"plain", "GET /", 200}, {"plain", "GET /away", 302}, {"ours", "GET /", 200},
		{"theirs", "GET /", 403}, {"theirs", "GET /away", 403}, {"theirs", "GET /tenant", 200}, {"denied", "GET /", 403},
		{"basic", "GET /", 401}, {"basic", "GET /away", 401}, {"basic", "GET / " + as("alice", "correct horse"), 200}, {"basic", "GET / " + as("alice", "wrong"), 401},
		{"nobody", "GET /", 401}, {"nobody", "GET /away", 401}, {"nobody", "GET / " + as("alice", "correct horse"), 401},
		{"asked", "GET /", 200}, {"asked", "GET / X-Want: 403", 403}, {"asked", "GET /away X-Want: 401", 401},
		{"limited", "GET /", 200}, {"limited", "GET /", 200}, {"limited", "GET /", 429},
		{"small", "POST / Content-Length: 5", 200}, {"small", "POST / Content-Length: 11", 413},
		{"headers", "GET /", 200}, {"foreign", "GET /", 503}, {"foreign", "GET /away", 503}, {"lost", "GET /", 503}, {"lost", "GET /away", 503},
		{"plain", "GET /", 200},
	} {
		words := strings.SplitN(c.request, " ", 3)
		text := words[0] + " " + words[1] + " HTTP/1.1\nHost: " + c.host + ".example\n"
		body := ""
		if len(words) > 2 {
			text += words[2] + "\n"
			if _, size, ok := strings.Cut(words[2], "Content-Length: "); ok {
				n, _ := strconv.Atoi(size)
				body = strings.Repeat("x", n)
			}
		}
		got := e.send(t, false, text+"\n"+body)
		if got.StatusCode != c.want {
			t.Errorf("%d: %s %s: %d, want %d", i, c.host, c.request, got.StatusCode, c.want)
		}
		if said := got.Header.Get("X-Said"); (said == "yes") != (c.host == "headers") {
			t.Errorf("%d: %s: X-Said %q", i, c.host, said)
		}
	}
	said := fmt.Sprint(e.result.Diagnostics)
	for _, want := range []string{"annotation hapsnap.dev/client-ca-secret protects something, and is no option of HTTPRoute", "ConfigMap shop/gone does not exist"} {
		if !strings.Contains(said, want) {
			t.Errorf("%q is not among %s", want, said)
		}
	}
}
