package routingtest

import (
	"crypto/tls"
	"fmt"
	"net/http/httptest"
	"strings"
	"testing"
)

// served is a Service of its own for each case, with annotations on it, and an
// Ingress for it. Its endpoints are ports of 127.0.0.1.
func served(t *testing.T, name string, ports []int, options ...string) string {
	t.Helper()
	var slices strings.Builder
	for i, port := range ports {
		fmt.Fprintf(&slices, `---
apiVersion: discovery.k8s.io/v1
kind: EndpointSlice
metadata: {namespace: shop, name: %[1]s-%[2]d, labels: {kubernetes.io/service-name: %[1]s}}
addressType: IPv4
ports: [{name: "", port: %[3]d, protocol: TCP}]
endpoints: [{addresses: [127.0.0.1]}]
`, name, i, port)
	}
	service := fmt.Sprintf("---\napiVersion: v1\nkind: Service\nmetadata:\n  namespace: shop\n  name: %s\n  annotations:\n    %s\nspec: {ports: [{port: 80}]}\n", name, annotated(options...))
	return service + slices.String() + ingress{name: name, rules: []string{name + ".example P / " + name}}.yaml()
}

// overTLS makes a mirror speak TLS, and HTTP/2 if it is to.
func overTLS(h2 bool) func(*httptest.Server) {
	return func(s *httptest.Server) {
		s.TLS = &tls.Config{}
		s.EnableHTTP2 = h2
		s.Config.Protocols.SetHTTP2(h2)
	}
}

func TestBackendProtocols(t *testing.T) {
	t.Parallel()
	onlyH2 := func(s *httptest.Server) {
		s.Config.Protocols.SetHTTP1(false)
		s.Config.Protocols.SetUnencryptedHTTP2(true)
	}
	var yaml strings.Builder
	for _, c := range []struct {
		name      string
		configure func(*httptest.Server)
		options   []string
	}{
		{"h1", nil, []string{"backend-protocol", "h1"}},
		{"h1tls", overTLS(false), []string{"backend-protocol", "h1-tls", "backend-sni", "web.internal"}},
		{"h2", onlyH2, []string{"backend-protocol", "h2"}},
		{"h2tls", overTLS(true), []string{"backend-protocol", "h2-tls", "backend-sni", "request-host"}},
		{"grpc", onlyH2, []string{"backend-protocol", "grpc"}},
		{"grpctls", overTLS(true), []string{"backend-protocol", "grpc-tls", "backend-verify", "none"}},
		{"verified", overTLS(true), []string{"backend-protocol", "h2-tls", "backend-verify", "system", "backend-sni", "example.com"}},
	} {
		yaml.WriteString(served(t, c.name, []int{mirror(t, c.name, c.configure)}, c.options...))
	}
	e := start(t, yaml.String())
	clean(t, e)
	byItself := "" // the name that HAProxy asks for when nobody says which
	if branch(t).AtLeast(3, 3) {
		byItself = "grpctls.example"
	}
	for name, want := range map[string]seen{
		"h1": {Proto: "HTTP/1.1"}, "h1tls": {Proto: "HTTP/1.1", TLS: true, SNI: "web.internal"},
		"h2": {Proto: "HTTP/2.0"}, "h2tls": {Proto: "HTTP/2.0", TLS: true, SNI: "h2tls.example"},
		"grpc": {Proto: "HTTP/2.0"}, "grpctls": {Proto: "HTTP/2.0", TLS: true, SNI: byItself},
	} {
		got := e.get(t, name+".example", "/").seen
		if got.Name != name || got.Proto != want.Proto || got.TLS != want.TLS || got.SNI != want.SNI {
			t.Errorf("%s: server saw %+v, want %+v", name, got, want)
		}
	}
	if got := e.get(t, "verified.example", "/"); got.StatusCode != 503 {
		t.Errorf("a certificate that nobody vouches for: %d", got.StatusCode)
	}
}

// The appProtocol of a Service's port is spoken without any option.
func TestAppProtocol(t *testing.T) {
	t.Parallel()
	onlyH2 := func(s *httptest.Server) {
		s.Config.Protocols.SetHTTP1(false)
		s.Config.Protocols.SetUnencryptedHTTP2(true)
	}
	var yaml strings.Builder
	for name, c := range map[string]struct {
		protocol  string
		configure func(*httptest.Server)
	}{"h2c": {"kubernetes.io/h2c", onlyH2}, "grpc": {"grpc", onlyH2}, "secure": {"https", overTLS(false)}, "plain": {"kubernetes.io/ws", nil}} {
		manifest := served(t, name, []int{mirror(t, name, c.configure)})
		yaml.WriteString(strings.Replace(manifest, "ports: [{port: 80}]", "ports: [{port: 80, appProtocol: "+c.protocol+"}]", 1))
	}
	e := start(t, yaml.String())
	clean(t, e)
	for name, want := range map[string]seen{
		"h2c": {Proto: "HTTP/2.0"}, "grpc": {Proto: "HTTP/2.0"}, "secure": {Proto: "HTTP/1.1", TLS: true}, "plain": {Proto: "HTTP/1.1"},
	} {
		if got := e.get(t, name+".example", "/").seen; got.Name != name || got.Proto != want.Proto || got.TLS != want.TLS {
			t.Errorf("%s: server saw %+v, want %+v", name, got, want)
		}
	}
}

// What the Service says wins over what the Ingress says.
func TestServiceWins(t *testing.T) {
	t.Parallel()
	port := mirror(t, "a", func(s *httptest.Server) {
		s.Config.Protocols.SetHTTP1(false)
		s.Config.Protocols.SetUnencryptedHTTP2(true)
	})
	yaml := served(t, "won", []int{port}, "backend-protocol", "h2") +
		ingress{name: "other", annotations: annotated("backend-protocol", "h1-tls"), rules: []string{"lost.example P / won"}}.yaml()
	e := start(t, yaml)
	clean(t, e)
	for _, host := range []string{"won.example", "lost.example"} {
		if got := e.get(t, host, "/"); got.seen.Proto != "HTTP/2.0" {
			t.Errorf("%s: %d %+v", host, got.StatusCode, got.seen)
		}
	}
}
