package channel

import (
	"flag"
	"reflect"
	"testing"
	"time"

	"github.com/hapsnap/hapsnap/internal/testing/schemas"
	"github.com/hapsnap/hapsnap/snapshots"
)

var updateSchema = flag.Bool("update", false, "rewrite the schema")

const schemaFile = "../../schemas/channel.json"

func TestSchemaIsFresh(t *testing.T) { // not in parallel: with -update it writes what the other tests read
	schemas.Published(t, schemas.Maker{}.File(snapshots.APIVersion, Kind, "What people say should run: docs/explanation/concepts.md", reflect.TypeFor[Channel]()), schemaFile, *updateSchema)
}

// The schema accepts what is written, and refuses what a reader refuses.
func TestSchemaTakesChannels(t *testing.T) {
	t.Parallel()
	id, err := snapshots.ParseID("r000012-9f3ac01b2d")
	if err != nil {
		t.Fatal(err)
	}
	text, err := Channel{Spec: Spec{
		Pin: &Pin{Snapshot: id, By: "carol", Reason: "incident", At: time.Now().UTC()}, Pause: &Pause{By: "carol", At: time.Now().UTC()},
		RequireApproval: true, Approved: []snapshots.ID{id},
	}}.Marshal()
	if err != nil {
		t.Fatal(err)
	}
	bad := []string{"spec: {pin: r12}", "spec: {pins: {snapshot: r000012-9f3ac01b2d}}", "spec: {requireApproval: never}", "spec: []", "spec: {approved: r12}"}
	for i := range bad {
		bad[i] = "apiVersion: hapsnap.dev/v1alpha1\nkind: Channel\n" + bad[i]
		if _, err := Parse([]byte(bad[i])); err == nil {
			t.Errorf("the program takes\n%s", bad[i])
		}
	}
	schemas.Validated(t, schemaFile, text, bad...)
}
