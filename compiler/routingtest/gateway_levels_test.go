package routingtest

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/hapsnap/hapsnap/compiler/config"
)

// asksFor adds annotations to the one object of a manifest. Names, without prefix, and values alternate.
func asksFor(text string, options ...string) string {
	at := strings.Index(text, "metadata: {") + len("metadata: {")
	return text[:at] + "annotations: {" + quotedOptions(options) + "}, " + text[at:]
}

// protecting are options that protect something.
type protecting struct {
	options []string
	request string // a header of a request that is refused
	want    int
	good    string // a header of one that passes, if one does
	passes  bool
}

// The protection of a Gateway applies to every attached route, of any namespace and with any options. A tenant
// can add protection, but not remove any. The same holds for the protection of a Service.
func TestRoutesLoosenNothingThatOthersProtect(t *testing.T) {
	t.Parallel()
	_, authPort := startAuth(t)
	protected := map[string]protecting{
		"deny":  {[]string{"deny-list", "127.0.0.0/8"}, "", 403, "", false},
		"allow": {[]string{"allow-list", "10.0.0.0/8"}, "", 403, "", false},
		"basic": {[]string{"auth-basic", "staff"}, as("bob", "correct horse"), 401, as("alice", "correct horse"), true},
		"asked": {[]string{"auth-url", "http://auth/check"}, "X-Want: 403", 403, "X-Want: 200", true},
		"body":  {[]string{"max-body-size", "10"}, "Content-Length: 11", 413, "Content-Length: 5", true},
		"any":   {[]string{"allow-list", "10.0.0.0/8", "auth-basic", "staff", "satisfy", "any"}, "", 401, as("alice", "correct horse"), true},
	}
	loosened := map[string][]string{
		"plain":   nil,
		"allow":   {"allow-list", "127.0.0.0/8"},
		"all":     {"allow-list", "0.0.0.0/0, ::/0", "deny-list", "192.0.2.0/24"},
		"any":     {"allow-list", "127.0.0.0/8", "auth-basic", "theirs", "satisfy", "any"},
		"large":   {"max-body-size", "1g", "rate-limit", "1000", "rate-limit-exempt", "127.0.0.0/8"},
		"asks":    {"auth-url", "http://pass/check", "auth-request-headers", "Cookie"},
		"headers": {"request-headers", "set X-Auth-User admin\nremove X-Debug", "response-headers", "set X-Said yes", "timeout-server", "9s"},
	}
	e, ports := startLeveled(t, authPort, protected, loosened)
	host := e.http[:strings.LastIndex(e.http, ":")]
	ask := func(port int, name, path, header string) int {
		text, body := "POST "+path+" HTTP/1.1\nHost: "+name+".example\n", ""
		if header != "" {
			text += header + "\n"
		}
		if _, size, ok := strings.Cut(header, "Content-Length: "); ok {
			n := 0
			_, _ = fmt.Sscan(size, &n)
			body = strings.Repeat("x", n)
		}
		e.http = fmt.Sprint(host, ":", port)
		return e.send(t, false, text+"\n"+body).StatusCode
	}
	for level, port := range ports {
		if level == "open" {
			continue
		}
		await(t, func() error { return reachable(t, fmt.Sprint(host, ":", port)) })
		await(t, func() error { return reachable(t, fmt.Sprint(host, ":", ports["open"])) })
		p := protected[level]
		for name := range loosened {
			for _, path := range []string{"/", "/away", "/split"} {
				if got := ask(port, name, path, p.request); got != p.want {
					t.Errorf("Gateway %s, route %s, %s: %d, want %d", level, name, path, got, p.want)
				}
			}
			if got := ask(ports["open"], name, "/"+level, p.request); got != p.want {
				t.Errorf("Service %s, route %s: %d, want %d", level, name, got, p.want)
			}
		}
		want := map[bool]int{true: 200, false: p.want}[p.passes]
		if got := ask(port, "plain", "/", p.good); got != want {
			t.Errorf("Gateway %s lets %q have %d, want %d", level, p.good, got, want)
		}
		if got := ask(ports["open"], "plain", "/"+level, p.good); got != want {
			t.Errorf("Service %s lets %q have %d, want %d", level, p.good, got, want)
		}
	}
}

func quotedOptions(options []string) string {
	var lines []string
	for i := 0; i+1 < len(options); i += 2 {
		lines = append(lines, fmt.Sprintf("hapsnap.dev/%s: %q", options[i], options[i+1]))
	}
	return strings.Join(lines, ", ")
}

// startLeveled runs a Gateway and a Service for each kind of protection, a Gateway named open, and routes of
// another namespace to all of them. It returns the ports of the Gateways.
func startLeveled(t *testing.T, authPort int, protected map[string]protecting, loosened map[string][]string) (e edge, ports map[string]int) {
	t.Helper()
	ports = map[string]int{}
	e = startEdited(t, func(cfg *config.Config) string {
		cfg.GatewayAPI.Enabled = true
		port := mirror(t, "a", nil)
		text := gatewayClass + serviceYAML("shop", "auth", authPort) + serviceYAML("tenant", "pass", authPort) + serviceYAML("tenant", "a", port) +
			users("staff", "alice:"+horse) + strings.Replace(users("theirs", "bob:"+horse), "namespace: shop", "namespace: tenant", 1)
		parents := ""
		for _, name := range slices.Sorted(maps.Keys(protected)) {
			ports[name] = freePort(t, cfg.Bind.Addresses[0])
			text += asksFor(gatewayYAML("shop", name, ports[name], ", allowedRoutes: {namespaces: {from: All}}"), protected[name].options...)
			parents += fmt.Sprintf("{name: %s, namespace: shop}, ", name)
			text += asksFor(serviceYAML("shop", "s-"+name, port), protected[name].options...)
		}
		ports["open"] = freePort(t, cfg.Bind.Addresses[0])
		text += gatewayYAML("shop", "open", ports["open"], ", allowedRoutes: {namespaces: {from: All}}")
		text += "---\napiVersion: gateway.networking.k8s.io/v1\nkind: ReferenceGrant\nmetadata: {name: g, namespace: shop}\nspec: {from: [{group: gateway.networking.k8s.io, kind: HTTPRoute, namespace: tenant}], to: [{group: '', kind: Service}]}\n"
		for _, name := range slices.Sorted(maps.Keys(loosened)) {
			rules := "  rules:\n  - backendRefs: [{name: a, port: 80}]\n  - {matches: [{path: {value: /away}}], filters: [{type: RequestRedirect, requestRedirect: {hostname: away.example}}]}\n" +
				"  - {matches: [{path: {value: /split}}], backendRefs: [{name: a, port: 80}, {name: a, port: 80, filters: [{type: RequestHeaderModifier, requestHeaderModifier: {set: [{name: X-A, value: b}]}}]}]}\n"
			text += asksFor(strings.Replace(routeYAML("tenant", name, name+".example", rules), "parentRefs: [{name: web, namespace: shop}]", "parentRefs: ["+parents+"]", 1), loosened[name]...)
			rules = "  rules:\n"
			for _, service := range slices.Sorted(maps.Keys(protected)) {
				rules += fmt.Sprintf("  - {matches: [{path: {value: /%s}}], backendRefs: [{name: %s, namespace: shop, port: 80}]}\n", service, "s-"+service)
			}
			text += asksFor(strings.Replace(routeYAML("tenant", name+"-to-services", name+".example", rules), "name: web, namespace: shop", "name: open, namespace: shop", 1), loosened[name]...)
		}
		return text
	})
	return e, ports
}
