package assert

import (
	"errors"
	"flag"
	"os"
	"path/filepath"
	"reflect"
	"testing"

	"github.com/hapsnap/hapsnap/internal/testing/schemas"
	"github.com/hapsnap/hapsnap/snapshots"
)

var updateSchema = flag.Bool("update", false, "rewrite the schema")

const schemaFile = "../../schemas/compilertest.json"

func testSchema() schemas.Schema {
	s := schemas.Maker{}.File(snapshots.APIVersion, Kind, "Tests of configurations and templates: docs/how-to/testing.md", reflect.TypeFor[document]())
	s["required"] = []string{"apiVersion", "kind", "metadata", "spec"}
	return s
}

func TestSchemaIsFresh(t *testing.T) { // not in parallel: with -update it writes what the other tests read
	schemas.Published(t, testSchema(), schemaFile, *updateSchema)
}

// The program refuses what the schema refuses for a type or a name.
func TestSchemaRefusesWhatTheProgramRefuses(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "test.yaml")
	head := map[string]any{"apiVersion": snapshots.APIVersion, "kind": Kind, "metadata": map[string]any{"name": "a"}}
	schemas.Refused(t, testSchema(), schemaFile, head, 50, func(_ string, text []byte) error {
		if err := os.WriteFile(file, text, 0o600); err != nil {
			t.Fatal(err)
		}
		_, found, err := Find(file)
		if err == nil && len(found) > 0 {
			err = errors.New(found[0].String())
		}
		return err
	})
}
