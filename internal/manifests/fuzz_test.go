package manifests

import (
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/tools/txtar"
	networkingv1 "k8s.io/api/networking/v1"
)

// Reading ends for any file, every object has a name, and every finding has a place in the file.
func FuzzParse(f *testing.F) {
	paths, err := filepath.Glob("testdata/read/*.txtar")
	if err != nil || len(paths) == 0 {
		f.Fatalf("no seeds: %v", err)
	}
	for _, path := range paths {
		archive, err := txtar.ParseFile(path)
		if err != nil {
			f.Fatal(err)
		}
		for _, file := range archive.Files {
			f.Add(file.Data, strings.HasSuffix(file.Name, ".json"))
		}
	}
	f.Fuzz(func(t *testing.T, data []byte, isJSON bool) {
		var set Set
		for _, c := range split(data, isJSON) {
			set.add(parse(c.text, isJSON), place{"f", c.lines})
		}
		set.sort()
		lines := strings.Count(string(data), "\n") + 1
		for _, p := range set.Problems {
			checkPlace(t, p.Position, lines)
		}
		for _, o := range set.Objects {
			if o.APIVersion == "" || o.Kind == "" || o.Name == "" {
				t.Errorf("object without a name: %+v", o)
			}
			checkPlace(t, o.Position("spec", "rules", 0), lines)
			for _, e := range o.Decode(new(networkingv1.Ingress)) {
				checkPlace(t, e.Position, lines)
			}
		}
	})
}

func checkPlace(t *testing.T, p Position, lines int) {
	t.Helper()
	// The YAML parser counts one more line for some ends of file, and knows other line ends than "\n".
	if p.File != "f" || p.Line < 1 || p.Column < 0 {
		t.Errorf("position %v of a file of %d lines", p, lines)
	}
}
