package cli

import (
	"context"
	"encoding/json"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/hapsnap/hapsnap/internal/testing/output"
)

const shopManifests = `apiVersion: networking.k8s.io/v1
kind: Ingress
metadata: {name: web, namespace: shop}
spec:
  ingressClassName: hapsnap
  rules:
  - host: shop.example.com
    http:
      paths:
      - path: /
        pathType: Prefix
        backend: {service: {name: web, port: {number: 80}}}
---
apiVersion: v1
kind: Service
metadata: {name: web, namespace: shop}
spec: {ports: [{port: 80}]}
`

// The page on a laptop says which object and field wrote the lines that answer a request, if it gets the
// objects.
func TestThePageNamesObjects(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	store, manifests := "dir:"+filepath.Join(dir, "store"), filepath.Join(dir, "web.yaml")
	if err := os.WriteFile(manifests, []byte(shopManifests), 0o600); err != nil {
		t.Fatal(err)
	}
	if code, _, errs := hapsnap(t, "render", "-f", manifests, "-o", store); code != 0 {
		t.Fatal(errs)
	}
	var out output.Buffer
	ctx, stop := context.WithCancel(t.Context())
	root := NewCommand(Name)
	root.SetArgs([]string{"ui", "--store", store, "--objects", manifests})
	root.SetOut(&out)
	done := make(chan error, 1)
	go func() { done <- root.ExecuteContext(ctx) }()
	wait := func(ok func() bool) {
		t.Helper()
		for began := time.Now(); !ok(); <-time.After(20 * time.Millisecond) {
			if time.Since(began) > 2*time.Minute {
				t.Fatalf("waited in vain: %s", out.String())
			}
		}
	}
	var page []string
	wait(func() bool {
		page = regexp.MustCompile(`^http://[0-9.:]+/`).FindStringSubmatch(out.String())
		return page != nil
	})
	var answer struct {
		Who, NoOrigins string
		Wrote          []struct {
			File    string
			Origins []struct{ Kind, Namespace, Name, Field, File string }
		}
	}
	wait(func() bool {
		response, err := http.Get(page[0] + "api/v1/answer?scheme=http&host=shop.example.com&path=/cart&headers=X-A=b%0AX-C=d&client=203.0.113.7")
		if err != nil {
			t.Fatal(err)
		}
		defer response.Body.Close()
		if err := json.NewDecoder(response.Body).Decode(&answer); err != nil {
			t.Fatal(err)
		}
		return len(answer.Wrote) > 0 || answer.NoOrigins != "" && answer.NoOrigins != "Which objects wrote the lines is being asked."
	})
	found := map[string]bool{}
	for _, w := range answer.Wrote {
		for _, o := range w.Origins {
			if o.Kind == "Ingress" && o.Namespace == "shop" && o.Name == "web" && o.File == manifests {
				found[w.File+" "+o.Field] = true
			}
		}
	}
	if !found["maps/prefix.map spec.rules[0].http.paths[0].path"] && !found["maps/prefix.map spec.rules[0].http.paths[0]"] {
		t.Errorf("%s: %s: found %v", answer.Who, answer.NoOrigins, found)
	}
	// A difference names the field that wrote an added line.
	if err := os.WriteFile(manifests, []byte(strings.ReplaceAll(shopManifests, "path: /\n", "path: /basket\n")), 0o600); err != nil {
		t.Fatal(err)
	}
	if code, _, errs := hapsnap(t, "render", "-f", manifests, "-o", store); code != 0 {
		t.Fatal(errs)
	}
	wait(func() bool {
		response, err := http.Get(page[0] + "diff?a=r1&b=r2")
		if err != nil {
			t.Fatal(err)
		}
		defer response.Body.Close()
		body, err := io.ReadAll(response.Body)
		return err == nil && strings.Contains(string(body), "/basket/") && strings.Contains(string(body), "Ingress shop/web · spec.rules[0].http.paths[0]")
	})
	stop()
	if err := <-done; err != nil {
		t.Errorf("it ended with: %v", err)
	}
}
