package manifests

import (
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"
)

const oneService = "apiVersion: v1\nkind: Service\nmetadata: {name: web}\n"

// Texts are read as files are, and their positions name them.
func TestReadTexts(t *testing.T) {
	set := ReadTexts(Text{"a.yaml", []byte(oneService + "---\n" + oneService)}, Text{"b.yaml", []byte("- 1\n")})
	dir := t.TempDir()
	write(t, filepath.Join(dir, "a.yaml"), oneService+"---\n"+oneService)
	write(t, filepath.Join(dir, "b.yaml"), "- 1\n")
	t.Chdir(dir)
	want, err := Read(".")
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(describe(want), describe(set)); diff != "" || len(set.Objects) != 1 || len(set.Problems) != 2 {
		t.Errorf("(-files +texts)\n%s", diff)
	}
}

// A file that two sets have read is merged once, and a second object of one name
// is a problem.
func TestMerge(t *testing.T) {
	t.Parallel()
	a, b := ReadTexts(Text{"a.yaml", []byte(oneService)}), ReadTexts(Text{"b.yaml", []byte(oneService + "---\n: -\n")})
	if merged := Merge(a, a, a); describe(merged) != describe(a) {
		t.Errorf("one file: %s", describe(merged))
	}
	merged := Merge(b, a, b)
	if len(merged.Objects) != 1 || merged.Objects[0].Position().File != "b.yaml" || len(merged.Problems) != 2 {
		t.Fatalf("two files: %s", describe(merged))
	}
	if p := merged.Problems[0]; p.Position.File != "a.yaml" || p.Name != "web" {
		t.Errorf("%v", p)
	}
}
