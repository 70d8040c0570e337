package compiler_test

import (
	"fmt"
	"strings"
	"testing"

	"golang.org/x/tools/txtar"
)

// A host of an Ingress that is left out is held, so that nobody else's rule answers for it. That
// never keeps anything from being published: where a template of the user makes something of it
// that HAProxy refuses, the host is let go.
func TestHostsOfRefusedIngressesAreHeld(t *testing.T) {
	t.Parallel()
	const hostMap = `{{range .Hosts}}{{if .Name}}{{.Name}} {{.Name}}
{{end}}{{end}}{{range .Held}}{{.Name}} {{.Name}}
{{end}}`
	for name, test := range map[string]struct {
		files []txtar.File
		held  bool
	}{
		"held": {nil, true},
		"a template uses the host": {[]txtar.File{
			{Name: "templates/haproxy/56-held.cfg", Data: []byte("{{range .Held}}\nbackend held_{{.Name}}\n    nonsense {{.Name}}\n{{end}}")},
			{Name: "templates/maps/host.map", Data: []byte(hostMap)},
		}, false},
		"a template fails without naming it": {[]txtar.File{
			{Name: "templates/haproxy/56-held.cfg", Data: []byte("{{if .Held}}\nnonsense\n{{end}}")},
		}, false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			object := func(namespace, host, rewrite string) string {
				return fmt.Sprintf("---\napiVersion: networking.k8s.io/v1\nkind: Ingress\nmetadata: {namespace: %s, name: web, annotations: {example.com/word: %q}}\nspec:\n  ingressClassName: hapsnap\n  rules:\n  - {host: %s, http: {paths: [{path: /, pathType: Prefix, backend: {service: {name: web, port: {number: 80}}}}]}}\n", namespace, rewrite, host)
			}
			files := append(test.files,
				txtar.File{Name: "manifests/all.yaml", Data: []byte(object("bad", "long-name.bad.example", "nothing") + object("good", "good.example", "src"))},
				txtar.File{Name: "templates/extend/backend.cfg", Data: []byte("    http-request set-header X-Word %[{{.Annotation \"example.com/word\"}}]\n")},
			)
			s := source(t, &txtar.Archive{Files: files})
			r, err := s.Once(t.Context(), haproxy(t), now, "test")
			if err != nil {
				t.Fatal(err, r.Diagnostics)
			}
			hosts := ""
			for _, f := range r.Draft.Files {
				if f.Path == "maps/host.map" {
					hosts = string(f.Content)
				}
			}
			if got := strings.Contains(hosts, "long-name.bad.example"); got != test.held {
				t.Errorf("held: %v, want %v; %s%v", got, test.held, hosts, r.Diagnostics)
			}
			if !strings.Contains(hosts, "good.example") {
				t.Errorf("the other Ingress is not served: %v", r.Diagnostics)
			}
		})
	}
}
