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
			if path := strings.Trim(i.Path.Value, `"`); strings.HasPrefix(path, "k8s.io/api/networking") || strings.HasSuffix(path, "/compiler/ingress") {
				t.Errorf("%s imports %s", f, path)
			}
		}
	}
}
