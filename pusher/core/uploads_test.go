package core

import (
	"fmt"
	"testing"
	"time"

	"github.com/hapsnap/hapsnap/pusher/fleet"
	"github.com/hapsnap/hapsnap/pusher/push"
	"github.com/hapsnap/hapsnap/pusher/rollout"
	"github.com/hapsnap/hapsnap/snapshots/bind"
	"github.com/hapsnap/hapsnap/snapshots/dirstore"
)

func stored(n int) push.Stored {
	return push.Stored{Kind: bind.MapFile, Name: fmt.Sprintf("%d.map", n)}
}

func TestUnneededFilesAreBounded(t *testing.T) {
	t.Parallel()
	var list []Upload
	now := noon
	needed := map[push.Stored]bool{}
	var garbage []push.Stored
	for n := range 20 { // each is needed for a second
		now = now.Add(time.Second)
		clear(needed)
		needed[stored(n)] = true
		list, garbage = reviewFiles(uploaded(list, []push.Stored{stored(n)}), needed, now, time.Hour)
	}
	if want := 20 - 1 - keptGenerations; len(garbage) != want || garbage[0] != stored(0) || garbage[want-1] != stored(want-1) {
		t.Errorf("garbage is %v, want the %d oldest", garbage, want)
	}

	var many []push.Stored
	for n := range keptUnneeded + 10 {
		many = append(many, stored(n))
	}
	list, garbage = reviewFiles(uploaded(nil, many), nil, noon, time.Hour)
	if len(garbage) != 10 {
		t.Errorf("of one generation %d are garbage, want 10", len(garbage))
	}
	if got := forgetStuck(list, noon.Add(time.Hour)); len(got) != len(list) {
		t.Errorf("%d of %d are remembered", len(got), len(list))
	}
	for n := range 3 * forgottenUnneeded {
		list = append(list, Upload{stored(1000 + n), noon.Add(time.Duration(n) * time.Second)})
	}
	list = append(list, Upload{Stored: stored(-1)}) // this one is needed
	tried := forgetStuck(list, noon.Add(time.Hour))
	if len(tried) != forgottenUnneeded+1 || tried[len(tried)-1] != list[len(list)-1] || tried[0].Stored != stored(1000+2*forgottenUnneeded) {
		t.Errorf("%d are remembered, the first %v", len(tried), tried[0])
	}
	if got := forgetStuck(list, noon); len(got) != len(list) {
		t.Errorf("what nobody tried to remove is forgotten: %d of %d", len(list)-len(got), len(list))
	}
}

// Uploads to instances that are gone are forgotten.
func TestUploadsOfInstancesThatAreGone(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	w := newSteps(t, 1, func() worldStore { return dirstore.Open(dir, dirstore.Options{}) })
	e := w.e
	e.state.Uploads = map[string][]Upload{"gone": {{Stored: stored(1)}}, "pod": {{Stored: stored(1)}}}
	e.instances["pod"] = &instanceState{Instance: fleet.Instance{Name: "pod", UID: "1"}}
	for name := range w.workers {
		e.membership.listed = append(e.membership.listed, e.instances[name].Instance)
	}
	e.membership.gather(noon)
	if len(e.state.Uploads["pod"]) > 0 {
		t.Error("uploads to a pod that is gone are remembered")
	}
	e.uploads.forgetAbsent(noon)
	e.uploads.forgetAbsent(noon.Add(uploadsOfAbsent - time.Second))
	if len(e.state.Uploads["gone"]) != 1 {
		t.Error("uploads to an instance that was taken out of the fleet's file are forgotten at once")
	}
	e.uploads.forgetAbsent(noon.Add(uploadsOfAbsent))
	if len(e.state.Uploads) > 0 {
		t.Errorf("they are remembered a day later: %v", e.state.Uploads)
	}
}

// An undo does not wait until files are removed.
func TestUndoWaitsForNoFiles(t *testing.T) {
	t.Parallel()
	e := newMachine(State{}, noon)
	i := &instanceState{garbage: []push.Stored{stored(1)}, garbageSince: noon, reviewed: review{at: noon.Add(time.Hour)}}
	for phase, want := range map[rollout.Phase]bool{rollout.Pushing: true, rollout.Soaking: true, rollout.Undoing: false} {
		e.state.Rollout.Rollout = &rollout.Rollout{Phase: phase}
		if got := e.overdue(i); got != want {
			t.Errorf("while it is %s, removing files comes first: %v", phase, got)
		}
	}
}
