package routingtest

import (
	"crypto/tls"
	"fmt"
	"net"
	"slices"
	"strings"
	"testing"

	"github.com/hapsnap/hapsnap/compiler/config"
	"github.com/hapsnap/hapsnap/compiler/diag"
)

// authorityMap returns a ConfigMap with certificate authorities.
func authorityMap(namespace, name string, pem []byte) string {
	return fmt.Sprintf("---\napiVersion: v1\nkind: ConfigMap\nmetadata: {namespace: %s, name: %s}\ndata:\n  ca.crt: |\n    %s\n", namespace, name, strings.ReplaceAll(strings.TrimSpace(string(pem)), "\n", "\n    "))
}

// validationYAML returns the validation of client certificates for a listener.
func validationYAML(mode string, configMaps ...string) string {
	var refs []string
	for _, name := range configMaps {
		refs = append(refs, fmt.Sprintf("{group: '', kind: ConfigMap, name: %s}", name))
	}
	return fmt.Sprintf("{validation: {mode: %s, caCertificateRefs: [%s]}}", mode, strings.Join(refs, ", "))
}

// portsFor returns n free ports for one HAProxy, and their addresses.
func portsFor(t *testing.T, cfg *config.Config, n int) (ports []any, addresses []string) {
	t.Helper()
	for range n {
		port := freePort(t, cfg.Bind.Addresses[0])
		ports, addresses = append(ports, port), append(addresses, fmt.Sprint(cfg.Bind.Addresses[0], ":", port))
	}
	return ports, addresses
}

// askingGateway returns a Gateway with a listener of each kind that asks clients for certificates. Most ports
// accept the first authority, and one accepts the second.
func askingGateway(t *testing.T, ports []any, ca, second authority) string {
	t.Helper()
	return gatewayClass + fmt.Sprintf(`---
apiVersion: gateway.networking.k8s.io/v1
kind: Gateway
metadata: {name: web, namespace: shop}
spec:
  gatewayClassName: hapsnap
  tls:
    frontend:
      default: `+validationYAML("AllowValidOnly", "clients")+`
      perPort:
      - {port: %[2]d, tls: `+validationYAML("AllowInsecureFallback", "clients")+`}
      - {port: %[3]d, tls: {}}
      - {port: %[6]d, tls: `+validationYAML("AllowValidOnly", "rubbish")+`}
      - {port: %[7]d, tls: `+validationYAML("AllowValidOnly", "rubbish", "second", "clients")+`}
  listeners:
  - {name: strict, port: %[1]d, protocol: HTTPS, tls: {certificateRefs: [{name: cert}]}}
  - {name: strict-host, port: %[1]d, hostname: host.example, protocol: HTTPS, tls: {certificateRefs: [{name: cert}]}}
  - {name: insecure, port: %[2]d, protocol: HTTPS, tls: {certificateRefs: [{name: cert}]}}
  - {name: open, port: %[3]d, protocol: HTTPS, tls: {certificateRefs: [{name: cert}]}}
  - {name: ends, port: %[4]d, protocol: TLS, tls: {certificateRefs: [{name: cert}]}}
  - {name: mixed-requests, port: %[5]d, protocol: HTTPS, tls: {certificateRefs: [{name: cert}]}}
  - {name: mixed-ends, port: %[5]d, hostname: ends.example, protocol: TLS, tls: {certificateRefs: [{name: cert}]}}
  - {name: mixed-passes, port: %[5]d, hostname: passes.example, protocol: TLS, tls: {mode: Passthrough}}
  - {name: rubbish, port: %[6]d, protocol: HTTPS, tls: {certificateRefs: [{name: cert}]}}
  - {name: several, port: %[7]d, protocol: HTTPS, tls: {certificateRefs: [{name: cert}]}}
  - {name: plain, port: %[8]d, protocol: HTTP}
`, ports...) + secretOf(t, "cert") + authorityMap("shop", "clients", ca.pem) + authorityMap("shop", "second", second.pem) + authorityMap("shop", "rubbish", []byte("-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\nca-file /etc/passwd")) +
		serviceYAML("shop", "a", echo(t, "a")) + serviceYAML("shop", "line", anyServer(t, "line")) +
		strings.Replace(routeYAML("shop", "web", "", "  rules: [{backendRefs: [{name: a, port: 80}]}]\n"), "  hostnames: []\n", "", 1) +
		connectionRouteYAML("TLSRoute", "ends", "ends", "'*.example'", "{name: line, port: 80}") +
		connectionRouteYAML("TLSRoute", "mixed-ends", "mixed-ends", "ends.example", "{name: line, port: 80}") +
		connectionRouteYAML("TLSRoute", "mixed-passes", "mixed-passes", "passes.example", "{name: line, port: 80}")
}

// A client without a certificate of a port's authorities is refused there, for requests and for connections,
// whatever host it asks for. With the insecure mode, all clients are let in. A bad ConfigMap of a tenant
// affects only that tenant.
func TestGatewayClientCertificates(t *testing.T) {
	t.Parallel()
	ca, second, stranger := newAuthority(t, "clients"), newAuthority(t, "clients"), newAuthority(t, "clients")
	var at []string
	e := startEdited(t, func(cfg *config.Config) string {
		cfg.GatewayAPI.Enabled = true
		var ports []any
		ports, at = portsFor(t, cfg, 8)
		return askingGateway(t, ports, ca, second)
	})
	strict, open := at[0], at[2]
	if c, err := net.Dial("tcp", at[5]); err == nil {
		c.Close()
		t.Error("a port whose authorities are rubbish is open")
	}
	good, other, bad := ca.client(t, "alice"), second.client(t, "bob"), stranger.client(t, "mallory")
	const refused = "refused"
	for _, c := range []struct {
		port, sni                   string
		none, good, second, unknown string // the answers without a certificate, and with one of each authority
	}{
		{strict, "host.example", refused, "a", refused, refused},
		{strict, "other.example", refused, "a", refused, refused},
		{strict, "", refused, "a", refused, refused},
		{at[1], "host.example", "a", "a", "a", "a"},
		{at[1], "", "a", "a", "a", "a"},
		{open, "host.example", "a", "a", "a", "a"},
		{at[3], "host.example", refused, "line", refused, refused},
		{at[4], "host.example", refused, "a", refused, refused},
		{at[4], "ends.example", refused, "line", refused, refused},
		{at[4], "passes.example", "line", "line", "line", "line"},
		{at[6], "host.example", refused, "a", "a", refused},
	} {
		for shows, want := range map[*tls.Certificate]string{nil: c.none, good: c.good, other: c.second, bad: c.unknown} {
			for _, h2 := range []bool{false, true} {
				if h2 && want == "line" {
					continue // its server only has HTTP/1
				}
				if got := (edge{https: c.port}).answerTo(t, asked(c.sni, shows), h2, or(c.sni, "none.example"), "/"); got != want {
					t.Errorf("port %s, SNI %q, HTTP/2 %v, as none %v, as good %v, as second %v: %s, want %s", c.port, c.sni, h2, shows == nil, shows == good, shows == other, got, want)
				}
			}
		}
	}
	if got := (edge{http: at[7]}).get(t, "host.example", "/"); got.StatusCode != 200 {
		t.Errorf("HTTP: %d", got.StatusCode)
	}
	for _, d := range e.result.Diagnostics {
		if !strings.Contains(d.Message, "ConfigMap shop/rubbish") {
			t.Errorf("unexpected: %v", d)
		}
	}
	// A session of the port without client certificates cannot be resumed at another port.
	session := &oneSession{}
	for _, visit := range []struct{ port, want string }{{open, "a"}, {strict, refused}} {
		cfg := asked("host.example", nil)
		cfg.ClientSessionCache, cfg.MinVersion = session, tls.VersionTLS13
		if got := (edge{https: visit.port}).answerTo(t, cfg, false, "host.example", "/"); got != visit.want {
			t.Errorf("with the session of an open port: %s, want %s", got, visit.want)
		}
	}
}

// policyYAML returns a BackendTLSPolicy for the Service with the same name.
func policyYAML(name, validation string) string {
	return fmt.Sprintf("---\napiVersion: gateway.networking.k8s.io/v1\nkind: BackendTLSPolicy\nmetadata: {name: %s, namespace: shop}\nspec: {targetRefs: [{group: '', kind: Service, name: %[1]s}], validation: {%s}}\n", name, validation)
}

// fromMap returns a validation with the authorities of ConfigMaps.
func fromMap(host string, names ...string) string {
	var refs []string
	for _, name := range names {
		refs = append(refs, fmt.Sprintf("{group: '', kind: ConfigMap, name: %s}", name))
	}
	return fmt.Sprintf("hostname: %s, caCertificateRefs: [%s]", host, strings.Join(refs, ", "))
}

// policedGateways returns two Gateways, the ConfigMaps and Secrets of policies, and routes for connections. The
// second Gateway has a client certificate for servers.
func policedGateways(t *testing.T, ports []any, ours, theirs authority) string {
	t.Helper()
	gateway := "---\napiVersion: gateway.networking.k8s.io/v1\nkind: Gateway\nmetadata: {name: %s, namespace: shop}\nspec:\n  gatewayClassName: hapsnap\n%s  listeners:\n%s"
	return gatewayClass + fmt.Sprintf(gateway, "web", "", fmt.Sprintf("  - {name: http, port: %d, protocol: HTTP}\n  - {name: good, port: %d, protocol: TCP}\n  - {name: ends, port: %d, protocol: TLS, tls: {certificateRefs: [{name: cert}]}}\n", ports[0], ports[1], ports[2])) +
		fmt.Sprintf(gateway, "shows", "  tls: {backend: {clientCertificateRef: {name: edge}}}\n", fmt.Sprintf("  - {name: http, port: %d, protocol: HTTP}\n", ports[3])) +
		secretOf(t, "cert") + ours.secret(t, "", "edge", "edge") + authorityMap("shop", "ours", ours.pem) + authorityMap("shop", "theirs", theirs.pem) + authorityMap("shop", "rubbish", []byte("rubbish")) +
		connectionRouteYAML("TCPRoute", "tcp", "good", "", "{name: good, port: 80}") +
		connectionRouteYAML("TLSRoute", "good", "ends", "good.example", "{name: good, port: 80}") +
		connectionRouteYAML("TLSRoute", "foreign", "ends", "foreign.example", "{name: foreign, port: 80}") +
		connectionRouteYAML("TLSRoute", "gone", "ends", "gone.example", "{name: gone, port: 80}")
}

// A server gets requests and connections only after it has shown a certificate that the policy of its Service
// accepts. A policy that cannot be used closes the Service, also for a Gateway with a client certificate.
func TestBackendTLSPolicies(t *testing.T) {
	t.Parallel()
	ours, theirs := newAuthority(t, "ours"), newAuthority(t, "theirs")
	secure := mirror(t, "secure", vouched(t, ours, tls.RequestClientCert, "web.internal"))
	strict := mirror(t, "strict", vouched(t, ours, tls.RequireAndVerifyClientCert, "web.internal"))
	unsecured := echo(t, "clear")
	services := map[string]struct {
		port       int
		validation string
		want       string // from the Gateway without a client certificate
		shown      string // from the one with a client certificate
	}{
		"none":     {unsecured, "", "clear", "clear"},
		"good":     {secure, fromMap("web.internal", "ours"), "200", "200 edge"},
		"several":  {secure, fromMap("web.internal", "gone", "theirs", "ours"), "200", "200 edge"},
		"same-san": {secure, fromMap("web.internal", "ours") + ", subjectAltNames: [{type: Hostname, hostname: web.internal}]", "200", "200 edge"},
		"strict":   {strict, fromMap("web.internal", "ours"), "502", "200 edge"},
		"name":     {secure, fromMap("other.internal", "ours"), "503", "503"},
		"foreign":  {secure, fromMap("web.internal", "theirs"), "503", "503"},
		"system":   {secure, "hostname: web.internal, wellKnownCACertificates: System", "503", "503"},
		"gone":     {secure, fromMap("web.internal", "gone"), "503", "503"},
		"rubbish":  {secure, fromMap("web.internal", "rubbish"), "503", "503"},
		"plain":    {unsecured, fromMap("web.internal", "ours"), "503", "503"},
		"refused":  {unsecured, fromMap("web.internal", "gone"), "503", "503"},
		"uri":      {secure, fromMap("web.internal", "ours") + ", subjectAltNames: [{type: URI, uri: 'spiffe://a/b'}]", "503", "503"},
		"nothing":  {unsecured, "hostname: web.internal", "503", "503"},
	}
	var at []string
	e := startEdited(t, func(cfg *config.Config) string {
		cfg.GatewayAPI.Enabled = true
		var ports []any
		ports, at = portsFor(t, cfg, 4)
		yaml := policedGateways(t, ports, ours, theirs)
		for name, s := range services {
			service := serviceYAML("shop", name, s.port)
			if name == "good" { // the policy wins over annotations
				service = strings.Replace(service, "name: good}", "name: good, annotations: {hapsnap.dev/backend-protocol: h1-tls, hapsnap.dev/backend-ca-secret: nowhere, hapsnap.dev/backend-sni: other.internal}}", 1)
			}
			yaml += service + strings.Replace(routeYAML("shop", name, name+".example", "  rules: [{backendRefs: [{name: "+name+", port: 80}]}]\n"),
				"parentRefs: [{name: web, namespace: shop}]", "parentRefs: [{name: web, sectionName: http}, {name: shows}]", 1)
			if s.validation != "" {
				yaml += policyYAML(name, s.validation)
			}
		}
		return yaml
	})
	for name, s := range services {
		for i, want := range map[int]string{0: s.want, 3: s.shown} {
			got := (edge{http: at[i]}).get(t, name+".example", "/")
			text := strings.TrimSpace(fmt.Sprint(got.StatusCode, " ", got.Header.Get("X-Client")))
			if want == "clear" {
				text = answer(got.Response)
			}
			if want == "502" && text == "503" { // the server refuses during the handshake or after it
				text = want
			}
			if text != want {
				t.Errorf("%s by Gateway %d: %q, want %q", name, i, text, want)
			}
		}
	}
	tcp := (edge{http: at[1]}).get(t, "web.internal", "/")
	if tcp.StatusCode != 200 || tcp.seen.Name != "secure" {
		t.Errorf("a TCPRoute: %d", tcp.StatusCode)
	}
	for host, want := range map[string]string{"good.example": "200", "foreign.example": "refused", "gone.example": "refused"} {
		if got := (edge{https: at[2]}).answerTo(t, asked(host, nil), false, host, "/"); got != want && !(want == "200" && got == "secure") {
			t.Errorf("a TLSRoute for %s: %s, want %s", host, got, want)
		}
	}
	reportedOn(t, e, diag.Object{Kind: "Service", Namespace: "shop", Name: "good"})
	for _, name := range []string{"gone", "rubbish", "refused", "uri", "nothing", "several"} {
		reportedOn(t, e, diag.Object{Kind: "BackendTLSPolicy", Namespace: "shop", Name: name})
	}
	if strings.Contains(configOf(e), "PRIVATE KEY") {
		t.Error("a key is in the snapshot")
	}
}

// An authority that may not be published is left out. Only the Gateway that names it is not served.
func TestAuthorityThatMayNotBePublished(t *testing.T) {
	t.Parallel()
	ca, evil := newAuthority(t, "clients"), newAuthority(t, "-----BEGIN RSA PRIVATE KEY-----")
	var at []string
	e := startEdited(t, func(cfg *config.Config) string {
		cfg.GatewayAPI.Enabled = true
		var ports []any
		ports, at = portsFor(t, cfg, 2)
		yaml := gatewayClass
		for i, namespace := range []string{"shop", "tenant"} {
			yaml += fmt.Sprintf("---\napiVersion: gateway.networking.k8s.io/v1\nkind: Gateway\nmetadata: {name: web, namespace: %s}\nspec:\n  gatewayClassName: hapsnap\n  tls: {frontend: {default: %s}}\n"+
				"  listeners: [{name: https, port: %d, protocol: HTTPS, tls: {certificateRefs: [{name: cert}]}}]\n", namespace, validationYAML("AllowValidOnly", "clients"), ports[i]) +
				serviceYAML(namespace, "a", echo(t, namespace)) + strings.Replace(strings.Replace(routeYAML(namespace, "web", "", "  rules: [{backendRefs: [{name: a, port: 80}]}]\n"), "  hostnames: []\n", "", 1), "namespace: shop}]", "namespace: "+namespace+"}]", 1)
		}
		return yaml + secretOf(t, "cert") + strings.Replace(secretOf(t, "cert"), "namespace: shop", "namespace: tenant", 1) + authorityMap("shop", "clients", ca.pem) +
			authorityMap("tenant", "clients", append(ca.pem[:len(ca.pem):len(ca.pem)], evil.pem...))
	})
	if got := (edge{https: at[0]}).answerTo(t, asked("a.example", ca.client(t, "alice")), false, "a.example", "/"); got != "shop" {
		t.Errorf("the other Gateway: %s", got)
	}
	if c, err := net.Dial("tcp", at[1]); err == nil {
		c.Close()
		t.Error("the Gateway is served without its authorities")
	}
	reportedOn(t, e, diag.Object{Kind: "ConfigMap", Namespace: "tenant", Name: "clients"})
}

// HAProxy verifies a certificate up to a self-signed one. If the authorities contain none, it refuses every
// client, and the compiler reports that.
func TestGatewayAuthoritiesWithoutRoot(t *testing.T) {
	t.Parallel()
	root := newAuthority(t, "root")
	middle := root.intermediate(t, "middle")
	client := middle.client(t, "alice")
	for name, c := range map[string]struct {
		pem            []byte
		want, reported string
	}{
		"the intermediate alone": {middle.pem, "refused", "HAProxy trusts no certificate of it"},
		"with its root":          {slices.Concat(middle.pem, root.pem), "a", ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var at []string
			e := startEdited(t, func(cfg *config.Config) string {
				cfg.GatewayAPI.Enabled = true
				var ports []any
				ports, at = portsFor(t, cfg, 1)
				return gatewayClass + fmt.Sprintf("---\napiVersion: gateway.networking.k8s.io/v1\nkind: Gateway\nmetadata: {name: web, namespace: shop}\nspec:\n  gatewayClassName: hapsnap\n  tls: {frontend: {default: %s}}\n  listeners: [{name: https, port: %d, protocol: HTTPS, tls: {certificateRefs: [{name: cert}]}}]\n", validationYAML("AllowValidOnly", "clients"), ports[0]) +
					secretOf(t, "cert") + authorityMap("shop", "clients", c.pem) + serviceYAML("shop", "a", echo(t, "a")) + routeYAML("shop", "web", "host.example", "  rules: [{backendRefs: [{name: a, port: 80}]}]\n")
			})
			if got := (edge{https: at[0]}).answerTo(t, asked("host.example", client), false, "host.example", "/"); got != c.want {
				t.Errorf("%s, want %s", got, c.want)
			}
			said := ""
			for _, d := range e.result.Diagnostics {
				said += d.String()
			}
			if (said != "") != (c.reported != "") || !strings.Contains(said, c.reported) {
				t.Errorf("reported %q, want %q", said, c.reported)
			}
		})
	}
}
