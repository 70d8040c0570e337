package compiler_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/tools/txtar"

	"github.com/hapsnap/hapsnap/compiler/config/kinds"
	"github.com/hapsnap/hapsnap/snapshots"
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

// HAProxy reads on after most errors, but not after one in the rule of a request. However
// many objects have one, and in however many namespaces, the objects of others are served,
// and the checks are bounded.
func TestErrorsThatAreReportedOneByOne(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		bad    map[string]int // objects that are at fault, by namespace; one in its middle is sound
		sound  []string       // namespaces whose sound object is served
		checks int            // at the most
	}{
		"a few":           {map[string]int{"a": 5}, []string{"a"}, 8},
		"thirty":          {map[string]int{"a": 30}, []string{"a"}, 60},
		"three hundred":   {map[string]int{"a": 300}, nil, 60},
		"two namespaces":  {map[string]int{"a": 300, "b": 3}, []string{"b"}, 60},
		"many namespaces": {manyNamespaces(120), nil, 140},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var objects strings.Builder
			add := func(namespace, name, fetch string) {
				fmt.Fprintf(&objects, "---\napiVersion: example.com/v1\nkind: Widget\nmetadata: {namespace: %s, name: %s}\nspec: {fetch: %s}\n", namespace, name, fetch)
			}
			add("other", "good", "src")
			for namespace, bad := range test.bad {
				for n := range bad {
					add(namespace, fmt.Sprintf("w%d", n), "nothing")
				}
				add(namespace, fmt.Sprintf("w%d-sound", bad/2), "src")
			}
			s := source(t, &txtar.Archive{Files: []txtar.File{
				{Name: "manifests/all.yaml", Data: []byte(objects.String())},
				{Name: "templates/haproxy/55-widgets.cfg", Data: []byte(`{{range .Objects "example.com/v1/Widget"}}
backend widget_{{.Object.Namespace}}_{{.Object.Name}} from main
    http-request set-header X-Fetched %[{{.Content.spec.fetch}}]
{{end}}`)},
			}})
			s.Config.Kinds = []kinds.Kind{{APIVersion: "example.com/v1", Kind: "Widget"}}
			checks := 0
			s.Stages = func(ctx context.Context, name string) (context.Context, func(error)) {
				if name == "validate" {
					checks++
				}
				return ctx, func(error) {}
			}
			result, err := s.Once(t.Context(), haproxy(t), time.Unix(0, 0), "test")
			if err != nil {
				t.Fatal(err)
			}
			if checks > test.checks {
				t.Errorf("%d checks, want at most %d", checks, test.checks)
			}
			i := slices.IndexFunc(result.Draft.Files, func(f snapshots.File) bool { return f.Path == "haproxy.cfg" })
			served := string(result.Draft.Files[i].Content)
			for _, namespace := range append(test.sound, "other") {
				if !strings.Contains(served, "backend widget_"+namespace+"_") {
					t.Errorf("the sound object of namespace %s is not served", namespace)
				}
			}
			for namespace, bad := range test.bad {
				left := 0
				for _, q := range result.Draft.Quarantined {
					if q.Namespace == namespace {
						left++
					}
				}
				if left < bad {
					t.Errorf("%d objects of namespace %s are left out, want %d or more", left, namespace, bad)
				}
			}
		})
	}
}

func manyNamespaces(n int) map[string]int {
	out := map[string]int{}
	for i := range n {
		out[fmt.Sprintf("n%d", i)] = 1
	}
	return out
}
