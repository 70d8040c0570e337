package sandbox_test

import (
	"cmp"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/hapsnap/hapsnap/compiler"
	"github.com/hapsnap/hapsnap/compiler/config"
	"github.com/hapsnap/hapsnap/compiler/diag"
	"github.com/hapsnap/hapsnap/compiler/inputs"
	"github.com/hapsnap/hapsnap/compiler/sandbox"
	"github.com/hapsnap/hapsnap/compiler/validate"
	"github.com/hapsnap/hapsnap/internal/manifests"
)

// start compiles manifests and runs the result.
func start(t *testing.T, yaml string, edit func(*config.Config)) *sandbox.Sandbox {
	t.Helper()
	check, err := validate.Find(t.Context(), cmp.Or(os.Getenv("HAPROXY"), "haproxy"))
	if err != nil {
		t.Fatal(err)
	}
	cfg := config.Default()
	if edit != nil {
		edit(&cfg)
	}
	set := manifests.ReadTexts(manifests.Text{File: "all.yaml", Data: []byte(yaml)})
	given := compiler.Given{Name: "test", Set: set}
	result, err := compiler.Source{Objects: given, Config: cfg}.Once(t.Context(), check, time.Now(), "test")
	if err != nil || diag.HasErrors(result.Diagnostics) {
		t.Fatal(err, result.Diagnostics)
	}
	gathered, err := given.Read(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	tr, err := sandbox.Start(t.Context(), check, result.Draft, inputs.Values(gathered.Objects.Secrets))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(tr.Close)
	return tr
}

// asked describes briefly who answers a request.
func asked(t *testing.T, tr *sandbox.Sandbox, r sandbox.Request) string {
	t.Helper()
	a, err := tr.Ask(t.Context(), r)
	switch {
	case err != nil:
		return "no answer"
	case a.Server == nil:
		return strings.TrimSpace(fmt.Sprint(a.Status, " ", a.Location))
	}
	return fmt.Sprint(a.Status, " ", a.Server.Backend, " ", cmp.Or(a.Server.Service, a.Server.Address))
}

const ingress = `
apiVersion: networking.k8s.io/v1
kind: Ingress
metadata: {namespace: shop, name: %s, annotations: {%s}}
spec:
  ingressClassName: hapsnap
  %s
  rules:
  - {host: %s, http: {paths: [{path: /, pathType: Prefix, backend: {service: {name: %s, port: {number: 80}}}}]}}
---
apiVersion: v1
kind: Service
metadata: {namespace: shop, name: %[5]s}
spec: {ports: [{port: 80}]}
---
`

func host(name, annotations, more, service string) string {
	return fmt.Sprintf(ingress, name, annotations, more, name+".example", service)
}

const authentication = `
apiVersion: v1
kind: Secret
metadata: {namespace: shop, name: users}
stringData: {auth: "alice:$5$abcdefgh$gruCpC7VkOTspMQTTSAR8mtlO9Upms.fwqE5y16JVM."}
---
`

const outside = `
apiVersion: networking.k8s.io/v1
kind: Ingress
metadata: {namespace: shop, name: outside}
spec:
  ingressClassName: hapsnap
  rules:
  - {host: outside.example, http: {paths: [{path: /, pathType: Prefix, backend: {service: {name: outside, port: {number: 80}}}}]}}
---
apiVersion: v1
kind: Service
metadata: {namespace: shop, name: outside}
spec: {type: ExternalName, externalName: db.example.net, ports: [{port: 80}]}
---
`

// HAProxy decides, whatever protocol the servers speak.
func TestAsk(t *testing.T) {
	t.Parallel()
	tr := start(t, host("plain", "", "", "web")+
		host("deny", "hapsnap.dev/deny-list: 203.0.113.0/24", "", "deny")+
		host("moved", "hapsnap.dev/ssl-redirect: '301'", "", "moved")+
		host("secure", "hapsnap.dev/backend-protocol: h2-tls, hapsnap.dev/backend-verify: system, hapsnap.dev/backend-sni: a.example, hapsnap.dev/send-proxy-protocol: v2", "", "secure")+
		host("grpc", "hapsnap.dev/backend-protocol: grpc", "", "grpc")+
		host("fast", "hapsnap.dev/backend-protocol: fcgi", "", "fast")+
		host("users", "hapsnap.dev/auth-basic: users", "", "users")+authentication+
		host("asked", "hapsnap.dev/auth-url: 'http://web.shop.svc:80/auth'", "", "asked")+
		host("v1", "hapsnap.dev/send-proxy-protocol: v1", "", "v1")+outside+
		host("passed", "hapsnap.dev/ssl-passthrough: 'true'", "", "passed"), nil)
	for _, c := range []struct {
		name string
		r    sandbox.Request
		want string
	}{
		{"plain", sandbox.Request{Port: 80, Host: "plain.example"}, "200 shop_web_80 shop/web"},
		{"method", sandbox.Request{Port: 80, Host: "plain.example", Method: "POST"}, "200 shop_web_80 shop/web"},
		{"TLS", sandbox.Request{Port: 443, TLS: true, Host: "plain.example:443"}, "200 shop_web_80 shop/web"},
		{"no such host", sandbox.Request{Port: 80, Host: "x.example"}, "404"},
		{"an address that is let in", sandbox.Request{Port: 80, Host: "deny.example"}, "200 shop_deny_80.deny shop/deny"},
		{"one that is not", sandbox.Request{Port: 80, Host: "deny.example", From: netip.MustParseAddr("203.0.113.9")}, "403"},
		{"IPv6", sandbox.Request{Port: 80, Host: "deny.example", From: netip.MustParseAddr("2001:db8::1")}, "200 shop_deny_80.deny shop/deny"},
		{"a redirect", sandbox.Request{Port: 80, Host: "moved.example", Path: "/x?y=1"}, "301 https://moved.example/x?y=1"},
		{"a server with TLS", sandbox.Request{Port: 80, Host: "secure.example"}, "200 shop_secure_80.secure shop/secure"},
		{"a server with HTTP/2", sandbox.Request{Port: 80, Host: "grpc.example"}, "200 shop_grpc_80.grpc shop/grpc"},
		{"a server with FastCGI", sandbox.Request{Port: 80, Host: "fast.example"}, "200 shop_fast_80.fast shop/fast"},
		{"without a password", sandbox.Request{Port: 80, Host: "users.example"}, "401"},
		{"with one", sandbox.Request{Port: 80, Host: "users.example", Headers: map[string]string{"Authorization": "Basic YWxpY2U6c2VjcmV0"}}, "200 shop_users_80.users shop/users"},
		{"a service says yes", sandbox.Request{Port: 80, Host: "asked.example"}, "200 shop_asked_80.asked shop/asked"},
		{"PROXY protocol 1", sandbox.Request{Port: 80, Host: "v1.example"}, "200 shop_v1_80.v1 shop/v1"},
		{"a name outside", sandbox.Request{Port: 80, Host: "outside.example"}, "200 shop_outside_80 db.example.net:80"},
		{"passed on", sandbox.Request{Port: 443, TLS: true, Host: "passed.example"}, "200 tls_shop_passed_80.passed shop/passed"},
	} {
		if got := asked(t, tr, c.r); got != c.want {
			t.Errorf("%s: %s, want %s", c.name, got, c.want)
		}
	}
	if _, err := tr.Ask(t.Context(), sandbox.Request{Port: 81, Host: "plain.example"}); !errors.Is(err, sandbox.ErrNoListener) {
		t.Errorf("a port without a listener: %v", err)
	}
}
