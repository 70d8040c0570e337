package pusher

import (
	"path/filepath"
	"testing"
	"time"

	"github.com/hapsnap/hapsnap/pusher/rollout"
	"github.com/hapsnap/hapsnap/snapshots"
)

// What is saved at the end of a rollout no longer waits for what its last step waited
// for: whoever reads the file then would be told so for as long as it takes to save again.
func TestSavedWithWhatItWaitsFor(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 11, 22, 3, 0, 0, 0, time.UTC)
	o := Options{State: filepath.Join(t.TempDir(), "state.json")}.withDefaults()
	fresh, err := readState(o.State)
	if err != nil {
		t.Fatal(err)
	}
	e := newEngine(o, fresh, nil, now)
	good := func(revision uint64) rollout.State {
		return rollout.State{Good: snapshots.ID{Revision: revision, Short: "0123456789"}}
	}
	if !e.commit(good(1), []rollout.Wait{{For: "its push", Instance: "edge-1"}}, now) || !e.commit(good(2), nil, now) {
		t.Fatal("not saved")
	}
	if s, err := ReadStatus(e.State); err != nil || s.Good.Revision != 2 || len(s.Waits) != 0 {
		t.Errorf("the file says %+v, %v", s, err)
	}
}
