package fleet

import (
	"errors"
	"flag"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"github.com/hapsnap/hapsnap/internal/testing/schemas"
	"github.com/hapsnap/hapsnap/snapshots"
)

var update = flag.Bool("update", false, "rewrite the schema")

const schemaFile = "../../schemas/fleet.json"

func fleetSchema() schemas.Schema {
	s := schemas.Maker{}.Document(snapshots.APIVersion, Kind, "The fleet of a pusher: docs/reference/fleet.md", reflect.TypeFor[spec](), reflect.Value{})
	text := schemas.Schema{"type": "object", "additionalProperties": schemas.Schema{"type": "string"}}
	metadata := s["properties"].(schemas.Schema)["metadata"].(schemas.Schema)["properties"].(schemas.Schema)
	metadata["namespace"], metadata["labels"], metadata["annotations"] = schemas.Schema{"type": "string"}, text, text
	return s
}

func TestSchemaIsFresh(t *testing.T) {
	schemas.Published(t, fleetSchema(), schemaFile, *update)
}

// The schema refuses exactly those files that the program refuses for a type or a name.
func TestSchemaRefusesWhatTheProgramRefuses(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "fleet.yaml")
	head := map[string]any{"apiVersion": snapshots.APIVersion, "kind": Kind}
	schemas.Refused(t, fleetSchema(), schemaFile, head, 100, func(name string, text []byte) error {
		if strings.HasPrefix(name, "null at") {
			return errors.New("nothing is the default, and only the schema refuses it")
		}
		if err := os.WriteFile(file, text, 0o600); err != nil {
			t.Fatal(err)
		}
		_, err := Read(file)
		return err
	})
}

// The fleets of the examples and of the documentation are valid.
func TestSchemaTakesExamples(t *testing.T) {
	t.Parallel()
	compiled := schemas.Compiled(t, schemaFile)
	checked := 0
	for _, root := range []string{"../../examples", "../../docs"} {
		err := filepath.WalkDir(root, func(path string, d os.DirEntry, err error) error {
			if err != nil || d.IsDir() || !strings.HasSuffix(path, ".yaml") && !strings.HasSuffix(path, ".md") {
				return err
			}
			text, err := os.ReadFile(path)
			if err != nil {
				return err
			}
			blocks := []string{string(text)}
			if strings.HasSuffix(path, ".md") {
				blocks = strings.Split(string(text), "```")
			}
			for _, block := range blocks {
				block = strings.TrimPrefix(block, "yaml\n")
				if strings.HasPrefix(block, "apiVersion: hapsnap.dev/v1alpha1\nkind: Fleet\n") {
					checked++
					if err := schemas.Validate(t, compiled, []byte(block)); err != nil {
						t.Errorf("%s: %v", path, err)
					}
				}
			}
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	if checked < 2 {
		t.Errorf("only %d fleets were checked", checked)
	}
}
