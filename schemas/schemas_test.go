package schemas_test

import (
	"bytes"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/hapsnap/hapsnap/internal/testing/schemas"
	own "github.com/hapsnap/hapsnap/schemas"
)

// Every example of the project validates, also those in pages.
func TestExamplesValidate(t *testing.T) {
	t.Parallel()
	checked := map[string]int{}
	for _, root := range []string{"../examples", "../docs", "../README.md"} {
		err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
			if err != nil || d.IsDir() {
				return err
			}
			text, err := os.ReadFile(path)
			if err != nil {
				return err
			}
			var documents []string
			switch filepath.Ext(path) {
			case ".yaml":
				documents = strings.Split(string(text), "\n---\n")
			case ".md":
				for i, block := range strings.Split(string(text), "```") {
					if body, isYAML := strings.CutPrefix(block, "yaml\n"); i%2 == 1 && isYAML {
						documents = append(documents, strings.Split(body, "\n---\n")...)
					}
				}
			}
			for _, document := range documents {
				if kind := kindOf(document); kind != "" {
					checked[kind]++
					validate(t, path, kind, document)
				}
			}
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	for kind, least := range map[string]int{"compilerconfig": 3, "fleet": 3, "compilertest": 2} {
		if checked[kind] < least {
			t.Errorf("%d documents of %s were checked: %v", checked[kind], kind, checked)
		}
	}
}

// kindOf returns the name of the schema for a document, "" if it is none of ours.
func kindOf(document string) string {
	ours, kind := false, ""
	for line := range strings.Lines(document) {
		line = strings.TrimSpace(strings.TrimRight(line, "\n"))
		ours = ours || line == "apiVersion: hapsnap.dev/v1alpha1"
		if name, ok := strings.CutPrefix(line, "kind: "); ok && kind == "" {
			kind = strings.ToLower(name)
		}
	}
	if _, ok := own.Of(kind); !ours || !ok {
		return ""
	}
	return kind
}

func validate(t *testing.T, path, kind, document string) {
	t.Helper()
	if err := schemas.Validate(t, schemas.Compiled(t, kind+".json"), []byte(document)); err != nil {
		t.Errorf("%s: %v\n%s", path, err, document)
	}
}

// What is printed is the file.
func TestSchemasAreFiles(t *testing.T) {
	t.Parallel()
	if names := strings.Join(own.Names(), " "); names != "channel compilerconfig compilertest fleet snapshot" {
		t.Errorf("there are %s", names)
	}
	for _, name := range own.Names() {
		got, ok := own.Of(name)
		want, err := os.ReadFile(name + ".json")
		if err != nil || !ok || !bytes.Equal(got, want) {
			t.Errorf("%s: %v, %v", name, ok, err)
		}
	}
	if _, ok := own.Of("../schemas"); ok {
		t.Error("there is a schema of another name")
	}
}
