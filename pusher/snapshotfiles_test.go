package pusher

import (
	"encoding/json"
	"errors"
	"os"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/hapsnap/hapsnap/snapshots"
)

func TestSnapshotsAreKeptOnDiskVerified(t *testing.T) {
	dir := t.TempDir()
	s := snapshots.Draft{Files: []snapshots.File{{Path: snapshots.ConfigFile, Content: []byte("global\n")}}, Time: noon}.Seal(3, snapshots.ID{})
	if err := keepOnDisk(dir, s); err != nil {
		t.Fatal(err)
	}
	got, err := readKept(dir, s.ID())
	if diff := cmp.Diff(s, got); err != nil || diff != "" {
		t.Errorf("read otherwise: %v (-want +got):\n%s", err, diff)
	}
	tampered := s
	tampered.Files = []snapshots.File{{Path: snapshots.ConfigFile, Content: []byte("global\n    daemon\n")}}
	data, err := json.Marshal(tampered)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(keptFile(dir, s.ID()), data, 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := readKept(dir, s.ID()); !errors.Is(err, snapshots.ErrCorrupt) {
		t.Errorf("a changed file was read: %v", err)
	}
	forget(dir, map[snapshots.ID]bool{})
	if _, err := os.Stat(keptFile(dir, s.ID())); err == nil {
		t.Error("it was not forgotten")
	}
}
