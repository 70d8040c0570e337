package routingtest

import (
	"strings"
	"testing"

	"github.com/hapsnap/hapsnap/compiler/config"
	"github.com/hapsnap/hapsnap/compiler/diag"
)

// A service that cannot be asked closes the routes, and says why.
func TestExternalAuthFailsClosed(t *testing.T) {
	t.Parallel()
	_, port := startAuth(t)
	yaml := serviceYAML("shop", "a", mirror(t, "a", nil)) + serviceYAML("shop", "auth", port) + serviceYAML("other", "auth", port) + serviceYAML("shared", "auth", port) +
		strings.Replace(serviceYAML("shop", "tls", port), "name: tls}\nspec", "name: tls, annotations: {hapsnap.dev/backend-protocol: h1-tls}}\nspec", 1) +
		"---\napiVersion: v1\nkind: Service\nmetadata: {namespace: shop, name: far}\nspec: {type: ExternalName, externalName: localhost, ports: [{port: 80}]}\n"
	wrong := map[string]struct{ url, message string }{
		"gone":     {"http://gone/", "Service shop/gone does not exist"},
		"port":     {"http://auth:81/", "Service shop/auth has no TCP port 81"},
		"other":    {"http://auth.other.svc/", "Service other/auth is of another namespace, which does not share it"},
		"tls":      {"http://tls/", "Service shop/tls is spoken to in another way than HTTP/1.1 in the clear"},
		"far":      {"http://far/", "leads to the machine of HAProxy"},
		"https":    {"https://auth/", "asks for TLS"},
		"host":     {"http://auth.shop.example.com/", "is not a Service of the cluster"},
		"address":  {"http://10.0.0.1/", "is not a Service of the cluster"},
		"fragment": {"http://auth/#a", "is not the URL of a Service"},
		"user":     {"http://me@auth/", "is not the URL of a Service"},
		"scheme":   {"ftp://auth/", "is not the URL of a Service"},
	}
	ingresses := []ingress{{name: "open", rules: []string{"open.example P / a"}}, optioned("shared", "auth-url", "http://auth.shared")}
	for name, w := range wrong {
		ingresses = append(ingresses, optioned(name, "auth-url", w.url))
	}
	ingresses = append(ingresses, optioned("header", "auth-url", "http://auth", "auth-response-headers", "Host"),
		optioned("signin", "auth-url", "http://auth", "auth-signin", "javascript:alert(1)"))
	e := startWith(t, yaml+all(ingresses), func(c *config.Config) { c.Shared.AuthServices = []string{"shared/auth"} })
	said := map[string]string{}
	for _, d := range e.result.Diagnostics {
		if d.Severity == diag.Error {
			said[d.Object.Name] += d.Message
		}
	}
	for name, w := range wrong {
		if !strings.Contains(said[name], w.message) || !strings.Contains(said[name], "answer 503") {
			t.Errorf("%s: want %q, got %q", name, w.message, said[name])
		}
		if got := e.get(t, name+".example", "/"); got.StatusCode != 503 {
			t.Errorf("%s: %d", name, got.StatusCode)
		}
	}
	for name, want := range map[string]int{"open": 200, "shared": 200, "header": 503, "signin": 503} {
		if got := e.get(t, name+".example", "/"); got.StatusCode != want {
			t.Errorf("%s: %d, want %d: %s", name, got.StatusCode, want, said[name])
		}
	}
}
