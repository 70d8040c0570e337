package config

import (
	"errors"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/hapsnap/hapsnap/internal/testing/schemas"
	"github.com/hapsnap/hapsnap/snapshots"
)

const schemaFile = "../../schemas/compilerconfig.json"

// configSchema is generated from the types and their comments, like the page.
func configSchema(t *testing.T) schemas.Schema {
	t.Helper()
	said, err := readComments(".", "agents", "field", "gateways", "kinds", "logs", "transport")
	if err != nil {
		t.Fatal(err)
	}
	d := documentWriter{comments: said}
	m := schemas.Maker{
		Describe: d.comment,
		Enum:     func(t reflect.Type) []string { return said.enums[t.Name()] },
		Numeric:  func(t reflect.Type) bool { return t == reflect.TypeFor[Size]() },
	}
	return m.Document(snapshots.APIVersion, Kind, "The compiler's configuration: docs/reference/configuration.md", reflect.TypeFor[Config](), reflect.ValueOf(Default()))
}

func TestSchemaIsFresh(t *testing.T) {
	t.Parallel()
	schemas.Published(t, configSchema(t), schemaFile, *update)
}

// The schema refuses exactly what the program refuses for a type or a name.
func TestSchemaRefusesWhatTheProgramRefuses(t *testing.T) {
	t.Parallel()
	head := map[string]any{"apiVersion": snapshots.APIVersion, "kind": Kind}
	schemas.Refused(t, configSchema(t), schemaFile, head, 500, func(_ string, text []byte) error {
		if _, found := Parse("c.yaml", text); len(found) > 0 {
			return errors.New(found[0].String())
		}
		return nil
	})
}

// The examples of the project are valid, and the program knows every field of the schema.
func TestSchemaTakesExamples(t *testing.T) {
	t.Parallel()
	compiled := schemas.Compiled(t, schemaFile)
	var files []string
	for _, root := range []string{"../../examples", "testdata"} {
		err := filepath.WalkDir(root, func(path string, _ os.DirEntry, err error) error {
			if strings.HasSuffix(path, ".yaml") {
				files = append(files, path)
			}
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	checked := 0
	for _, path := range files {
		text, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		if !slices.Contains(strings.Split(string(text), "\n"), "kind: "+Kind) {
			continue
		}
		checked++
		if err := schemas.Validate(t, compiled, text); err != nil {
			t.Errorf("%s: %v", path, err)
		}
	}
	if checked < 2 {
		t.Errorf("only %d files were checked", checked)
	}
	defaults, err := os.ReadFile(example)
	if err != nil {
		t.Fatal(err)
	}
	if schemas.Validate(t, compiled, []byte(strings.Replace(string(defaults), "spec:", "spec:\n  bufferSize: 65536\n  nonsense: 1", 1))) == nil {
		t.Error("an unknown field is not refused")
	}
}
