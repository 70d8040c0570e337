package routingtest

import (
	"fmt"
	"io"
	"net"
	"strings"
	"testing"

	"github.com/hapsnap/hapsnap/compiler/config"
)

// connectionGateway returns the Gateway shop/web with listeners, and more manifests.
func connectionGateway(listeners, more string) string {
	return gatewayClass + "---\napiVersion: gateway.networking.k8s.io/v1\nkind: Gateway\nmetadata: {name: web, namespace: shop}\nspec:\n  gatewayClassName: hapsnap\n  allowedListeners: {namespaces: {from: Same}}\n  listeners:\n" + listeners + more
}

// connectionRouteYAML returns a route of a kind to the Gateway shop/web.
func connectionRouteYAML(kind, name, section, hosts, refs string) string {
	if hosts != "" {
		hosts = "hostnames: [" + hosts + "], "
	}
	return fmt.Sprintf("---\napiVersion: gateway.networking.k8s.io/v1\nkind: %s\nmetadata: {name: %s, namespace: shop}\nspec: {parentRefs: [{name: web, sectionName: %s}], %srules: [{backendRefs: [%s]}]}\n", kind, name, section, hosts, refs)
}

// Weights share out connections. A share without a usable server is closed, and no other connection is.
func TestGatewayConnectionWeights(t *testing.T) {
	t.Parallel()
	var ports []int
	ip := ""
	e := startEdited(t, func(cfg *config.Config) string {
		cfg.GatewayAPI.Enabled = true
		ip = cfg.Bind.Addresses[0]
		ports = []int{freePort(t, ip), freePort(t, ip), freePort(t, ip)}
		return connectionGateway(fmt.Sprintf("  - {name: tcp, port: %d, protocol: TCP}\n  - {name: half, port: %d, protocol: TCP}\n  - {name: tls, port: %d, protocol: TLS, tls: {mode: Passthrough}}\n", ports[0], ports[1], ports[2]),
			serviceYAML("shop", "a", anyServer(t, "a"))+serviceYAML("shop", "b", anyServer(t, "b"))+
				connectionRouteYAML("TCPRoute", "tcp", "tcp", "", "{name: a, port: 80, weight: 3}, {name: b, port: 80}, {name: b, port: 80, weight: 0}")+
				connectionRouteYAML("TCPRoute", "half", "half", "", "{name: a, port: 80}, {name: gone, port: 80}")+
				connectionRouteYAML("TLSRoute", "tls", "tls", "a.example", "{name: a, port: 80}, {name: b, port: 80, weight: 3}"))
	})
	if n := len(e.result.Diagnostics); n != 1 {
		t.Errorf("%d findings: %v", n, e.result.Diagnostics)
	}
	const connections = 400
	for i, want := range []map[string]int{{"a/plain": 300, "b/plain": 100}, {"a/plain": 200, "closed": 200}, {"a/tls": 100, "b/tls": 300}} {
		got := map[string]int{}
		for range connections {
			got[connectAs(t, fmt.Sprint(ip, ":", ports[i]), "a.example", i == 2, false)]++
		}
		for answer, n := range want {
			if d := got[answer] - n; d > 70 || d < -70 || len(got) != len(want) { // seven standard deviations
				t.Errorf("listener %d: %v, want about %v", i, got, want)
			}
		}
	}
}

// Listeners that terminate TLS use certificates by their hostnames, and so do HTTPS listeners at the same port.
// A request on a connection of an HTTPS listener for a host of a TLS listener gets 421.
func TestGatewayTLSBesideHTTPS(t *testing.T) {
	t.Parallel()
	var mixed, ended string
	e := startEdited(t, func(cfg *config.Config) string {
		cfg.GatewayAPI.Enabled = true
		ip := cfg.Bind.Addresses[0]
		ports := []int{freePort(t, ip), freePort(t, ip)}
		mixed, ended = fmt.Sprint(ip, ":", ports[0]), fmt.Sprint(ip, ":", ports[1])
		listener := func(name, host string, port int, protocol, mode string) string {
			return fmt.Sprintf("  - {name: %s, hostname: '%s', port: %d, protocol: %s, tls: {mode: %s, certificateRefs: [{name: %[1]s}]}}\n", name, host, port, protocol, mode)
		}
		certificate, key := hostKeyPair(t, "*.ended.example", "deep.down.ended.example")
		set := strings.Replace(listener("set", "set.example", ports[1], "TLS", "Terminate"), "  - ", "", 1)
		return connectionGateway(listener("requests", "*.example", ports[0], "HTTPS", "Terminate")+listener("passed", "*.passed.example", ports[0], "TLS", "Passthrough")+listener("one", "one.example", ports[0], "TLS", "Terminate")+
			listener("all", "", ports[1], "TLS", "Terminate")+listener("ended", "*.ended.example", ports[1], "TLS", "Terminate"),
			secretOf(t, "requests")+secretOf(t, "one")+secretOf(t, "all")+secretOf(t, "set")+secretYAML("ended", certificate, key)+
				"---\napiVersion: gateway.networking.k8s.io/v1\nkind: ListenerSet\nmetadata: {name: set, namespace: shop}\nspec: {parentRef: {name: web}, listeners: ["+strings.TrimSpace(set)+"]}\n"+
				serviceYAML("shop", "web", anyServer(t, "web"))+serviceYAML("shop", "line", anyServer(t, "line"))+
				routeYAML("shop", "web", "'*.example'", "  rules: [{backendRefs: [{name: web, port: 80}]}]\n")+
				connectionRouteYAML("TLSRoute", "passed", "passed", "'*.example'", "{name: line, port: 80}")+connectionRouteYAML("TLSRoute", "one", "one", "one.example", "{name: line, port: 80}")+
				connectionRouteYAML("TLSRoute", "all", "all", "x.other, '*.example'", "{name: web, port: 80}")+connectionRouteYAML("TLSRoute", "ended", "ended", "'*.example'", "{name: line, port: 80}")+
				strings.Replace(connectionRouteYAML("TLSRoute", "set", "set", "set.example", "{name: line, port: 80}"), "{name: web, sectionName", "{name: set, kind: ListenerSet, sectionName", 1))
	})
	for _, d := range e.result.Diagnostics {
		if !strings.Contains(d.Message, "the route is not attached") {
			t.Errorf("unexpected: %v", d)
		}
	}
	for _, c := range []struct{ address, host, certificate, want string }{
		{mixed, "a.passed.example", "line", "line/tls"}, {mixed, "b.a.passed.example", "line", "line/tls"}, {mixed, "one.example", "one", "line/plain"},
		{mixed, "two.example", "requests", "web"}, {mixed, "x.two.example", "fallback.invalid", "web"},
		{ended, "a.ended.example", "*.ended.example", "line/plain"}, {ended, "deep.down.ended.example", "*.ended.example", "line/plain"}, {ended, "x.y.ended.example", "all", "line/plain"},
		{ended, "x.other", "all", "web/plain"}, {ended, "y.other", "all", "closed"}, {ended, "set.example", "set", "line/plain"},
	} {
		await(t, func() error {
			conn, err := net.Dial("tcp", c.address)
			if err == nil {
				conn.Close()
			}
			return err
		})
		e.https = c.address
		if got := e.certificate(t, c.host); got != c.certificate {
			t.Errorf("%s: certificate of %s, want %s", c.host, got, c.certificate)
		}
		if got := connectAs(t, c.address, c.host, true, !strings.Contains(c.want, "/") && c.want != "closed"); got != c.want {
			t.Errorf("%s: %s, want %s", c.host, got, c.want)
		}
	}
	for host, want := range map[string]int{"two.example": 200, "one.example": 421, "a.passed.example": 421} {
		c := askTLS(dialFrom(t, "127.0.0.1", mixed), "two.example", nil)
		r, err := exchange(c, "GET / HTTP/1.1\nHost: "+host)
		if err != nil {
			t.Fatal(err)
		}
		if r.StatusCode != want {
			t.Errorf("a request for %s by a connection for two.example: %d, want %d", host, r.StatusCode, want)
		}
	}
}

// At all ports of Gateways, connections from trusted networks begin with a header of the PROXY protocol. If one
// frontend hands a connection to another, there is one header for each, and the server of a request gets the
// address in it. The same holds for ssl-passthrough of Ingresses.
func TestGatewayConnectionsAndProxyProtocol(t *testing.T) {
	t.Parallel()
	var mixed, plain, requests string
	e := startEdited(t, func(cfg *config.Config) string {
		cfg.GatewayAPI.Enabled, cfg.ProxyProtocol.Trusted = true, []string{"127.0.9.1", proxyClient + "/32"}
		ip := cfg.Bind.Addresses[0]
		ports := []int{freePort(t, ip), freePort(t, ip), freePort(t, ip)}
		mixed, plain, requests = fmt.Sprint(ip, ":", ports[0]), fmt.Sprint(ip, ":", ports[1]), fmt.Sprint(ip, ":", ports[2])
		return connectionGateway(fmt.Sprintf("  - {name: requests, port: %d, protocol: HTTPS, tls: {certificateRefs: [{name: cert}]}}\n  - {name: tls, hostname: a.example, port: %[1]d, protocol: TLS, tls: {mode: Terminate, certificateRefs: [{name: cert}]}}\n"+
			"  - {name: tcp, port: %d, protocol: TCP}\n  - {name: direct, port: %d, protocol: HTTPS, tls: {certificateRefs: [{name: cert}]}}\n", ports[0], ports[1], ports[2]),
			secretOf(t, "cert")+serviceYAML("shop", "web", mirror(t, "web", nil))+serviceYAML("shop", "line", anyServer(t, "line"))+
				passed("pass", "pass.example P / line").yaml()+ingress{name: "ended", rules: []string{"c.example P / web"}}.yaml()+
				routeYAML("shop", "web", "b.example", "  rules: [{backendRefs: [{name: web, port: 80}]}]\n")+
				connectionRouteYAML("TLSRoute", "tls", "tls", "a.example", "{name: line, port: 80}")+connectionRouteYAML("TCPRoute", "tcp", "tcp", "", "{name: line, port: 80}"))
	})
	clean(t, e)
	for _, source := range []string{"127.0.9.1", "127.0.8.1"} {
		begin := func(address string) net.Conn {
			c := dialFrom(t, source, address)
			if source == "127.0.9.1" {
				fmt.Fprint(c, proxyV1())
			}
			return c
		}
		for address, secure := range map[string]bool{mixed: true, plain: false} {
			c := begin(address)
			if secure {
				c = askTLS(c, "a.example", nil)
			}
			fmt.Fprintln(c, "ping")
			if got, _ := io.ReadAll(c); string(got) != "line/plain\n" {
				t.Errorf("%s by %s: %q", source, address, got)
			}
		}
		want := map[string]string{"127.0.9.1": proxyClient, "127.0.8.1": "127.0.8.1"}[source]
		for address, host := range map[string]string{mixed: "b.example", requests: "b.example", e.https: "c.example"} {
			c := askTLS(begin(address), host, nil)
			r, err := exchange(c, "GET / HTTP/1.1\nHost: "+host)
			if err != nil {
				t.Errorf("%s by %s: %v", source, address, err)
				continue
			}
			if !strings.Contains(r.body, `"X-Forwarded-For":["`+want+`"]`) {
				t.Errorf("%s by %s: %s, want the address %s", source, address, r.body, want)
			}
		}
	}
}
