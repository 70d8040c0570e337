package routingtest

import (
	"fmt"
	"strings"
	"testing"

	"github.com/hapsnap/hapsnap/compiler/config"
)

// A Service that leads to HAProxy itself does not have one request take all connections: neither directly, nor by the
// service that is asked for authentication, nor by a mirror, whatever a route does to headers.
func TestLoopsEnd(t *testing.T) {
	t.Parallel()
	gateway := ""
	e := startEdited(t, func(cfg *config.Config) string {
		cfg.GatewayAPI.Enabled, cfg.HAProxyVersion, cfg.MaxConn = true, branch(t), 200
		port := freePort(t, cfg.Bind.Addresses[0])
		gateway = fmt.Sprint(cfg.Bind.Addresses[0], ":", port)
		here := func(name string, port int) string {
			return sliced(name, "IPv4", fmt.Sprintf("%d {addresses: [%s]}", port, cfg.Bind.Addresses[0]))
		}
		return gatewayClass + gatewayYAML("shop", "web", port, "") + serviceYAML("shop", "a", echo(t, "a")) + here("loop", cfg.HTTP.Port) + here("round", port) + all([]ingress{
			{name: "open", rules: []string{"open.example P / a"}},
			optioned("asks", "auth-url", "http://loop", "auth-host", "asks.example", "auth-request-headers", "Accept"),
		}) + routeYAML("shop", "round", "round.example", "  rules:\n  - {filters: [{type: RequestHeaderModifier, requestHeaderModifier: {set: [{name: X-A, value: b}]}}], backendRefs: [{name: round, port: 80}]}\n") +
			routeYAML("shop", "copies", "copies.example", "  rules:\n  - {filters: [{type: RequestMirror, requestMirror: {backendRef: {name: round, port: 80}}}], backendRefs: [{name: a, port: 80}]}\n")
	})
	clean(t, e)
	for _, tt := range []struct{ address, host, want string }{
		{e.http, "loop.example", "508"}, {e.http, "asks.example", "503"}, {gateway, "round.example", "508"}, {gateway, "copies.example", "a"}, {e.http, "open.example", "a"},
	} {
		if got := raw(t, tt.address, "GET / HTTP/1.1\r\nHost: "+tt.host+"\r\nConnection: close\r\n\r\n"); got != tt.want {
			t.Errorf("%s: %s, want %s", tt.host, got, tt.want)
		}
	}
	for loops, want := range map[string]string{"": "a", strings.Repeat("x, ", 8) + "x": "a", strings.Repeat("x, ", 9) + "x": "508"} {
		if got := raw(t, e.http, "GET / HTTP/1.1\r\nHost: open.example\r\nCDN-Loop: "+loops+"\r\nConnection: close\r\n\r\n"); got != want {
			t.Errorf("CDN-Loop: %s: %s, want %s", loops, got, want)
		}
	}
}

// Neither annotations nor filters change what ends loops, and what says where a message ends.
func TestHeadersOfTheConnectionStay(t *testing.T) {
	t.Parallel()
	cfg := config.Default()
	cfg.GatewayAPI.Enabled, cfg.HAProxyVersion = true, branch(t)
	yaml := gatewayClass + gatewayYAML("shop", "web", 8000, "") + serviceYAML("shop", "a", 80) + optioned("plain", "request-headers", "remove CDN-Loop").yaml()
	filters := map[string]string{
		"CDN-Loop":          "{type: RequestHeaderModifier, requestHeaderModifier: {remove: [CDN-Loop]}}",
		"content-length":    "{type: ResponseHeaderModifier, responseHeaderModifier: {set: [{name: content-length, value: '5'}]}}",
		"Transfer-Encoding": "{type: ResponseHeaderModifier, responseHeaderModifier: {add: [{name: Transfer-Encoding, value: chunked}]}}",
	}
	for name, filter := range filters {
		yaml += routeYAML("shop", strings.ToLower(name), strings.ToLower(name)+".example", "  rules:\n  - {filters: ["+filter+"], backendRefs: [{name: a, port: 80}]}\n")
	}
	yaml += routeYAML("shop", "host", "host.example", "  rules:\n  - {filters: [{type: RequestHeaderModifier, requestHeaderModifier: {set: [{name: Host, value: b.example}]}}], backendRefs: [{name: a, port: 80}]}\n")
	result, _ := compile(t, yaml, cfg)
	said := fmt.Sprint(result.Diagnostics)
	for name := range filters {
		if want := fmt.Sprintf("header %q is not one that can be changed", name); !strings.Contains(said, want) {
			t.Errorf("nobody was told that %s", want)
		}
	}
	if !strings.Contains(said, `"CDN-Loop" is not a header that can be edited`) || strings.Contains(said, `"Host"`) {
		t.Errorf("it is said\n%s", said)
	}
}
