package manifests

import (
	"encoding/binary"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"unicode/utf16"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/tools/txtar"
	networkingv1 "k8s.io/api/networking/v1"
)

var update = flag.Bool("update", false, "rewrite the golden files")

// Each golden holds the files of a directory and, as "want", the result of Read: objects with their position,
// then problems.
func TestReadGolden(t *testing.T) {
	paths, err := filepath.Glob("testdata/read/*.txtar")
	if err != nil || len(paths) == 0 {
		t.Fatalf("no goldens: %v", err)
	}
	for _, path := range paths {
		t.Run(strings.TrimSuffix(filepath.Base(path), ".txtar"), func(t *testing.T) {
			golden, err := txtar.ParseFile(path)
			if err != nil {
				t.Fatal(err)
			}
			dir := t.TempDir()
			var want string
			files := golden.Files[:0]
			for _, f := range golden.Files {
				if f.Name == "want" {
					want = string(f.Data)
					continue
				}
				files = append(files, f)
				write(t, filepath.Join(dir, f.Name), string(f.Data))
			}
			set, err := Read(dir)
			if err != nil {
				t.Fatal(err)
			}
			got := strings.ReplaceAll(describe(set), dir+"/", "")
			if *update {
				golden.Files = append(files, txtar.File{Name: "want", Data: []byte(got)})
				if err := os.WriteFile(path, txtar.Format(golden), 0o644); err != nil {
					t.Fatal(err)
				}
				return
			}
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("(-want +got)\n%s", diff)
			}
		})
	}
}

// describe writes a set as text. Ingresses are decoded too.
func describe(set Set) string {
	var b strings.Builder
	for _, o := range set.Objects {
		fmt.Fprintf(&b, "%s: %s %s\n", o.Position(), o.APIVersion, o)
		if o.Kind != "Ingress" {
			continue
		}
		var ingress networkingv1.Ingress
		for _, e := range o.Decode(&ingress) {
			fmt.Fprintf(&b, "\t%s: %s\n", e.Position, e.Error())
			if e.Hint != "" {
				fmt.Fprintf(&b, "\t\thint: %s\n", e.Hint)
			}
		}
	}
	for _, p := range set.Problems {
		o := Object{Kind: p.Kind, Namespace: p.Namespace, Name: p.Name}
		fmt.Fprintf(&b, "%s: %s: %s\n\thint: %s\n", p.Position, o, p.Message, p.Hint)
	}
	return b.String()
}

func write(t *testing.T, path, content string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(content), 0o644); err != nil {
		t.Fatal(err)
	}
}

const oneService = "apiVersion: v1\nkind: Service\nmetadata: {name: web}\n"

// ReadTexts reads texts as Read does files, and positions name the texts.
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

// Merge keeps one copy of a file that two sets have read, and reports a second object of one name.
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

// A file in UTF-16 is said to be one, with a byte order mark and without: the parser would take it for one document with
// two values, or for control characters.
func TestReadUTF16(t *testing.T) {
	two := oneService + "---\n" + oneService
	for name, mark := range map[string][]uint16{"with a mark": {0xfeff}, "without": nil} {
		var text []byte
		for _, unit := range append(mark, utf16.Encode([]rune(two))...) {
			text = binary.LittleEndian.AppendUint16(text, unit)
		}
		set := ReadTexts(Text{"a.yaml", text})
		if len(set.Problems) != 1 || !strings.Contains(set.Problems[0].Message, "UTF-16") {
			t.Errorf("%s: %s", name, describe(set))
		}
	}
}
