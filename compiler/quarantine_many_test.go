package compiler_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"golang.org/x/tools/txtar"

	"github.com/hapsnap/hapsnap/compiler/config"
)

// HAProxy reads on after most errors, but not after one in an expression. However
// many objects have one, all of them are left out, and the others are served.
func TestErrorsThatAreReportedOneByOne(t *testing.T) {
	t.Parallel()
	const bad = 30
	var objects strings.Builder
	for n := range bad + 1 {
		fetch := "nothing"
		if n == bad/2 {
			fetch = "src"
		}
		fmt.Fprintf(&objects, "---\napiVersion: example.com/v1\nkind: Widget\nmetadata: {namespace: shop, name: w%d}\nspec: {fetch: %s}\n", n, fetch)
	}
	s := source(t, &txtar.Archive{Files: []txtar.File{
		{Name: "manifests/all.yaml", Data: []byte(objects.String())},
		{Name: "templates/haproxy/55-widgets.cfg", Data: []byte(`{{range .Objects "example.com/v1/Widget"}}
backend widget_{{.Object.Name}} from main
    http-request set-header X-Fetched %[{{.Content.spec.fetch}}]
{{end}}`)},
	}})
	s.Config.Kinds = []config.ObjectKind{{APIVersion: "example.com/v1", Kind: "Widget"}}
	result, err := s.Once(t.Context(), haproxy(t), time.Unix(0, 0), "test")
	if err != nil {
		t.Fatal(err)
	}
	if got := len(result.Draft.Quarantined); got != bad {
		t.Errorf("%d objects are left out, want %d", got, bad)
	}
	for _, f := range result.Draft.Files {
		if f.Path == "haproxy.cfg" && strings.Count(string(f.Content), "backend widget_") != 1 {
			t.Errorf("served: %s", f.Content)
		}
	}
}
