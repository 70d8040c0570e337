package compiler_test

import (
	"context"
	"fmt"
	"strings"
	"testing"

	"golang.org/x/tools/txtar"
)

const (
	secretWord = "t0p-S3cret-Zx81q"
	secretHost = "t0p-s3cr3t-zx81q.bad.example"
	// closedSecret has both values, as a tenant may write them.
	closedSecret = "---\napiVersion: v1\nkind: Secret\nmetadata: {namespace: bad, name: db}\nstringData: {password: " + secretWord + ", other: " + secretHost + "}\n"
)

// simpleIngress has one path of one host.
func simpleIngress(name, host, path, annotations string) string {
	namespace, name, _ := strings.Cut(name, "/")
	return fmt.Sprintf(`---
apiVersion: networking.k8s.io/v1
kind: Ingress
metadata: {namespace: %s, name: %s, annotations: {%s}}
spec:
  ingressClassName: hapsnap
  rules:
  - {host: %q, http: {paths: [{path: %q, pathType: Prefix, backend: {service: {name: web, port: {number: 80}}}}]}}
`, namespace, name, annotations, host, path)
}

// closedCase is a fault of closed routes, and what happens to other routes.
type closedCase struct {
	objects string
	files   []txtar.File
	closed  []string // keys of prefix.map that answer 503
	open    []string // keys that do not
	checks  int
}

func closedCases() map[string]closedCase {
	const protects = "hapsnap.dev/allow-list: 10.0.0.0/8"
	hosts := func(text string) []txtar.File {
		return []txtar.File{{Name: "templates/haproxy/05-hosts.cfg", Data: []byte(text)}}
	}
	manyFaults := ""
	for i := range 30 {
		manyFaults += simpleIngress(fmt.Sprintf("bad/many%d", i), fmt.Sprintf("bad%d.example", i), "/", protects)
	}
	return map[string]closedCase{
		"a path that is the value of a Secret": {
			objects: simpleIngress("bad/web", "bad.example", "/"+secretWord, protects) + closedSecret +
				simpleIngress("bad/all", "bad.example", "/", "") + simpleIngress("bad/nohost", "", "/", "") +
				simpleIngress("bad/apart", "apart.example", "/", "") + simpleIngress("more/part", "bad.example", "/more", ""),
			closed: []string{"bad.example|/", "|/"},
			open:   []string{"bad.example|/more/", "apart.example|/"},
			checks: 6,
		},
		"an alias that is the value of a Secret": {
			objects: simpleIngress("bad/web", "bad.example", "/admin", protects+", hapsnap.dev/server-alias: "+secretHost) + closedSecret +
				simpleIngress("bad/all", "bad.example", "/", ""),
			closed: []string{"bad.example|/"},
			checks: 6,
		},
		"a template that HAProxy refuses for a host": {
			objects: simpleIngress("bad/web", "bad.example", "/admin", protects) + simpleIngress("more/part", "bad.example", "/more", ""),
			files:   hosts("{{range .Hosts}}{{range .Routes}}{{if eq .Match.Path \"/admin\"}}\nnonsense {{.Match.Path}}{{end}}{{end}}{{end}}\n"),
			open:    []string{"bad.example|/more/"},
			checks:  12,
		},
		"a template that HAProxy refuses, whose line names nobody": {
			objects: simpleIngress("bad/web", "bad.example", "/admin", protects) + simpleIngress("bad/all", "bad.example", "/", "") + simpleIngress("bad/sound", "sound.example", "/", protects),
			files:   hosts("{{$bad := false}}{{range .Hosts}}{{range .Routes}}{{if eq .Match.Path \"/admin\"}}{{$bad = true}}{{end}}{{end}}{{end}}\n{{if $bad}}nonsense{{end}}\n"),
			closed:  []string{"bad.example|/"},
			open:    []string{"sound.example|/"},
			checks:  20,
		},
		"thirty of a namespace, one a round": {
			objects: manyFaults,
			files:   hosts("{{$bad := 0}}{{range .Hosts}}{{if and (not $bad) (contains \"bad\" .Name)}}{{$bad = 1}}\n# {{.Origin}}\nnonsense\n{{end}}{{end}}\n"),
			checks:  80,
		},
	}
}

// The routes of an Ingress that is left out answer 503 if it protects something. If even those fail, routes of
// other namespaces are served, and nothing of the Ingress's own namespace takes the requests instead.
func TestFaultsOfClosedRoutes(t *testing.T) {
	t.Parallel()
	for name, test := range closedCases() {

		t.Run(name, func(t *testing.T) {
			t.Parallel()
			files := append(test.files, txtar.File{Name: "manifests/all.yaml", Data: []byte(test.objects + simpleIngress("good/web", "good.example", "/", "") +
				"---\napiVersion: v1\nkind: Service\nmetadata: {namespace: good, name: web}\nspec: {ports: [{port: 80}]}\n")})
			s := source(t, &txtar.Archive{Files: files})
			checks := 0
			s.Stages = func(ctx context.Context, name string) (context.Context, func(error)) {
				if name == "validate" {
					checks++
				}
				return ctx, func(error) {}
			}
			r, err := s.Once(t.Context(), haproxy(t), now, "test")
			if err != nil {
				t.Fatal(err, r.Diagnostics)
			}
			prefixes := ""
			for _, f := range r.Draft.Files {
				if f.Path == "maps/prefix.map" {
					prefixes = "\n" + string(f.Content)
				}
			}
			for _, key := range append(test.open, "good.example|/") {
				if !strings.Contains(prefixes, "\n"+key+" ") || strings.Contains(prefixes, "\n"+key+" hapsnap_unavailable\n") {
					t.Errorf("%s is not served", key)
				}
			}
			for _, key := range test.closed {
				if !strings.Contains(prefixes, "\n"+key+" hapsnap_unavailable\n") {
					t.Errorf("%s is not closed", key)
				}
			}
			if strings.Contains(prefixes, secretWord) || strings.Contains(prefixes, secretHost) {
				t.Error("the value is in the map")
			}
			if checks > test.checks {
				t.Errorf("%d checks, want at most %d", checks, test.checks)
			}
			if t.Failed() {
				t.Log(prefixes, r.Diagnostics)
			}
		})
	}
}
