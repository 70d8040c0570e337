package pusher

import (
	"errors"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/hapsnap/hapsnap/pusher/rollout"
	"github.com/hapsnap/hapsnap/snapshots"
)

func TestInUse(t *testing.T) {
	t.Parallel()
	id := func(n uint64) snapshots.ID { return snapshots.ID{Revision: n, Short: "aaaaaaaaaa"} }
	file := filepath.Join(t.TempDir(), "state.json")
	if _, err := InUse(file); !errors.Is(err, ErrNoState) {
		t.Errorf("no file: %v", err)
	}
	s, err := readState(file)
	if err != nil {
		t.Fatal(err)
	}
	s.Rollout = rollout.State{
		Good: id(1),
		Rollout: &rollout.Rollout{Target: id(2), Touched: []rollout.Touch{
			{Instance: "a", Snapshot: id(2)}, {Instance: "b", Snapshot: id(3)},
		}},
		Instances: map[string]rollout.Instance{
			"b": {Push: &rollout.Push{Snapshot: id(4)}},
			"a": {Push: &rollout.Push{Snapshot: id(4)}, Refused: id(8)},
			"c": {},
		},
	}
	s.Status = Status{
		Channel:   ChannelStatus{Wanted: id(5)},
		Instances: []InstanceStatus{{Name: "a", Running: id(1)}, {Name: "b", Running: id(6)}, {Name: "c"}},
	}
	if err := s.save(t.Context(), &stateFile{file: file}); err != nil {
		t.Fatal(err)
	}
	got, err := InUse(file)
	want := map[snapshots.ID]string{
		id(1): "last good, running on a",
		id(2): "target of the rollout, pushed to a",
		id(3): "pushed to b",
		id(4): "pushed to a, pushed to b",
		id(5): "wanted",
		id(6): "running on b",
	}
	if diff := cmp.Diff(want, got); err != nil || diff != "" {
		t.Errorf("%v (-want +got):\n%s", err, diff)
	}
}
