package pusher

import (
	"encoding/json"
	"errors"
	"os"
	"slices"
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

// While files of snapshots are removed, what is needed since is not read: it would be kept on disk,
// and removed at once. What is being read by then stays.
func TestSnapshotIsNotReadWhileItIsForgotten(t *testing.T) {
	t.Parallel()
	e := newEngine(Options{State: "none"}.withDefaults(), state{}, nil, noon)
	one, two, three := snapshots.ID{Revision: 1, Short: "aaaaaaaaaa"}, snapshots.ID{Revision: 2, Short: "bbbbbbbbbb"}, snapshots.ID{Revision: 3, Short: "cccccccccc"}
	for _, test := range []struct {
		good, wanted snapshots.ID
		ends         Event // of what was begun before
		begins       []string
	}{
		{one, two, nil, []string{ReadSnapshot{one}.String(), ReadSnapshot{two}.String()}},
		{three, three, SnapshotRead{ID: one}, []string{ReadSnapshot{three}.String(), ForgetSnapshots{map[snapshots.ID]bool{two: true, three: true}}.String()}},
		{one, two, nil, nil},
		{one, two, SnapshotsForgotten{}, []string{ReadSnapshot{one}.String()}},
	} {
		if test.ends != nil {
			test.ends.apply(e, noon)
		}
		e.state.Rollout.Good, e.decision.ID = test.good, test.wanted
		e.readSnapshots(noon)
		var begun []string
		for _, x := range e.effects {
			begun = append(begun, x.String())
		}
		if e.effects = nil; !slices.Equal(begun, test.begins) {
			t.Errorf("for %s and %s it began %q, want %q", test.good, test.wanted, begun, test.begins)
		}
	}
}
