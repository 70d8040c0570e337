package routing

import (
	"go/parser"
	"go/token"
	"path/filepath"
	"strings"
	"testing"
)

// The model does not depend on the API that it was translated from.
func TestNeutral(t *testing.T) {
	t.Parallel()
	var files []string
	for _, pattern := range []string{"*.go", "*/*.go"} {
		found, err := filepath.Glob(pattern)
		if err != nil || len(found) == 0 {
			t.Fatal(pattern, err)
		}
		files = append(files, found...)
	}
	for _, f := range files {
		parsed, err := parser.ParseFile(token.NewFileSet(), f, nil, parser.ImportsOnly)
		if err != nil {
			t.Fatal(err)
		}
		for _, i := range parsed.Imports {
			path := strings.Trim(i.Path.Value, `"`)
			for _, api := range []string{"k8s.io/api/networking", "sigs.k8s.io/gateway-api", "github.com/hapsnap/hapsnap/compiler/ingress", "github.com/hapsnap/hapsnap/compiler/gateway"} {
				if path == api || strings.HasPrefix(path, api+"/") {
					t.Errorf("%s imports %s", f, path)
				}
			}
		}
	}
}
