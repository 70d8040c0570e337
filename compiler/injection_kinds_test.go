package compiler_test

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"golang.org/x/tools/txtar"
	"sigs.k8s.io/yaml"

	"github.com/hapsnap/hapsnap/compiler"
	"github.com/hapsnap/hapsnap/compiler/config/kinds"
	"github.com/hapsnap/hapsnap/compiler/validate"
)

// routed is an object of a kind of a user's own, %d being its number, and what
// templates make of it: a section, conditions, a list, a map and a directive.
const (
	routed = `
- apiVersion: example.com/v1
  kind: Widget
  metadata: {namespace: shop, name: widget%[1]d, labels: {tier: web}, annotations: {example.com/owner: team}}
  spec: {host: web%[1]d.example, methods: [GET, HEAD], service: web%[1]d, port: http, header: plain, timeouts: {server: 5s}}
`
	routedSection = `{{range .Objects "example.com/v1/Widget"}}
backend widget.{{.Object.Namespace}}_{{.Object.Name}} from main
    timeout server {{.Content.spec.timeouts.server}}
    http-request set-header X-Header {{literal .Content.spec.header}} if { method {{words .Content.spec.methods}} } { req.hdr(host) -m str {{.Content.spec.host}} }
    http-request set-header X-Owner {{literal (index .Annotations "example.com/owner")}}
    #hapsnap servers {{.Object.Namespace}}/{{.Content.spec.service}}:{{.Content.spec.port}}
{{end}}
`
	routedMap = `{{range .Indexed "example.com/v1/Widget" "byTier" "web"}}{{.Content.spec.host}} widget.{{.Object.Namespace}}_{{.Object.Name}}
{{end}}`
)

// No string of an object of a kind of a user's own can write a line of its own,
// end a word or a condition, or begin a comment, whatever the template does with
// it; the sound object beside them is served.
func TestInjectionIntoOtherKinds(t *testing.T) {
	t.Parallel()
	check := haproxy(t)
	for _, name := range attempted() {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			objects := widgets(t, 0)
			for _, p := range places(widgets(t, 1)) {
				for _, text := range []string{fmt.Sprintf("EVIL%d%sEVIL", len(objects), hostile[name]), hostile[name]} {
					attacked := widgets(t, len(objects))
					p.put(attacked, text)
					objects = append(objects, attacked...)
				}
			}
			result := compiledWidgets(t, check, objects)
			if len(result.Draft.Quarantined) == 0 {
				t.Error("nothing is refused")
			}
			for _, f := range result.Artifact.Files {
				checkWords(t, f.Path, f.Content)
				if f.Path == "maps/widgets.map" && !strings.Contains(string(f.Content), "web0.example widget.shop_widget0\n") {
					t.Error("the sound object is not served")
				}
			}
		})
	}
}

// compiledWidgets returns what becomes of objects with the templates above.
func compiledWidgets(t *testing.T, check *validate.Checker, objects []any) compiler.Result {
	t.Helper()
	text, err := json.Marshal(map[string]any{"apiVersion": "v1", "kind": "List", "items": objects})
	if err != nil {
		t.Fatal(err)
	}
	s := source(t, &txtar.Archive{Files: []txtar.File{
		{Name: "manifests/all.json", Data: text},
		{Name: "templates/haproxy/55-widgets.cfg", Data: []byte(routedSection)}, {Name: "templates/maps/widgets.map", Data: []byte(routedMap)},
	}})
	s.Config.Kinds = []kinds.Kind{{APIVersion: "example.com/v1", Kind: "Widget", Indexes: map[string]string{"byTier": ".metadata.labels.tier"}}}
	result, err := s.Once(t.Context(), check, now, "test")
	if err != nil {
		t.Fatal(err, len(result.Diagnostics))
	}
	return result
}

// widgets returns a list of one object, as JSON has it.
func widgets(t *testing.T, n int) []any {
	t.Helper()
	var objects []any
	if err := yaml.Unmarshal(fmt.Appendf(nil, routed, n), &objects); err != nil {
		t.Fatal(err)
	}
	return objects
}
