package migrate_test

import (
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/hapsnap/hapsnap/compiler/diag"
	"github.com/hapsnap/hapsnap/compiler/migrate"
)

// What stays of an object whose other annotations are gone means what it did beside them: a
// second run takes nothing of it for meaningless.
func TestAgain(t *testing.T) {
	for name, c := range map[string]struct {
		annotations []string // what a first run with Remove leaves
		errors      int
		keeps       string // an annotation of ingress-nginx that is still there
	}{
		"verification": {[]string{"hapsnap.dev/backend-protocol", "h1-tls", "nginx.ingress.kubernetes.io/proxy-ssl-secret", "other/backend", "nginx.ingress.kubernetes.io/proxy-ssl-verify", "on"}, 2, "proxy-ssl-verify"},
		"parameters":   {[]string{"hapsnap.dev/backend-protocol", "fcgi", "nginx.ingress.kubernetes.io/fastcgi-params-configmap", "gone"}, 1, "fastcgi-params-configmap"},
		"snippet":      {[]string{"hapsnap.dev/allow-list", "10.0.0.0/8", "nginx.ingress.kubernetes.io/configuration-snippet", "allow 192.0.2.1; deny all;"}, 1, "configuration-snippet"},
		"refusal":      {[]string{"hapsnap.dev/allow-list", "10.0.0.0/8", "nginx.ingress.kubernetes.io/configuration-snippet", "deny all;"}, 1, "configuration-snippet"},
		"headers":      {[]string{"hapsnap.dev/response-headers", "set A b", "nginx.ingress.kubernetes.io/configuration-snippet", `more_set_headers "C: d";`}, 1, "configuration-snippet"},
		"same headers": {[]string{"hapsnap.dev/response-headers", "set A b\nset C d", "nginx.ingress.kubernetes.io/configuration-snippet", `more_set_headers "C: d";`}, 0, ""},
		"ways in":      {[]string{"hapsnap.dev/allow-list", "10.0.0.0/8", "hapsnap.dev/auth-basic", "staff", "nginx.ingress.kubernetes.io/satisfy", "any"}, 0, ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Chdir(t.TempDir())
			text := "apiVersion: networking.k8s.io/v1\nkind: Ingress\nmetadata:\n  name: x\n  annotations:\n"
			for i := 0; i < len(c.annotations); i += 2 {
				text += fmt.Sprintf("    %s: %q\n", c.annotations[i], c.annotations[i+1])
			}
			text += "spec:\n  ingressClassName: nginx\n  rules:\n  - {host: x.example, http: {paths: [{path: /, pathType: Prefix, backend: {service: {name: web, port: {number: 80}}}}]}}\n"
			if err := os.WriteFile("x.yaml", []byte(text), 0o600); err != nil {
				t.Fatal(err)
			}
			result, err := migrate.Directory(".", migrate.Options{Remove: true})
			if err != nil {
				t.Fatal(err)
			}
			errors := 0
			for _, d := range result.Findings {
				if d.Severity == diag.Error {
					errors++
				}
			}
			for _, f := range result.Files {
				text = string(f.Content)
			}
			if errors != c.errors || c.keeps != "" && !strings.Contains(text, c.keeps) {
				t.Errorf("%d errors, %v\n%s", errors, result.Findings, text)
			}
			if name == "ways in" && !strings.Contains(text, "hapsnap.dev/satisfy") {
				t.Error("one way in is not enough any more")
			}
		})
	}
}
