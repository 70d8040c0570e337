package pusher

import (
	"fmt"
	"os"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hapsnap/hapsnap/pusher/fleet"
	"github.com/hapsnap/hapsnap/pusher/push"
	"github.com/hapsnap/hapsnap/pusher/rollout"
	"github.com/hapsnap/hapsnap/snapshots/bind"
	"github.com/hapsnap/hapsnap/snapshots/dirstore"
)

// Snapshots follow on one another, so that there is always a rollout. What the instances
// keep, and what the pusher does, stays bounded, and each can be undone.
func TestFilesStayFewWhileSnapshotsFollowOnOneAnother(t *testing.T) {
	t.Parallel()
	tests := map[string]struct {
		every time.Duration
		n     int
	}{"each replaces the one before": {4 * time.Second, 40}, "each is finished": {30 * time.Second, 20}}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				s := newStory(t)
				s.set("collect", time.Hour)
				s.begin()
				most, largest, slots := 0, 0, 0
				for n := range tt.n {
					d := draftTLS(fmt.Sprint(n + 2))
					backend := fmt.Sprintf("shop_%d", n+2)
					d.Files[0].Content = append(d.Files[0].Content, fmt.Sprintf("backend %s\n    #hapsnap servers shop/web:http\n", backend)...)
					d.Files[1].Content = []byte("shop.example.com " + backend + "\n")
					if _, _, err := s.store.Publish(t.Context(), d); err != nil {
						t.Fatal(err)
					}
					pass(tt.every)
					for _, i := range s.instances {
						most = max(most, strings.Count(fmt.Sprint(i.state().files), "maps/"))
					}
					data, err := os.ReadFile(s.options.State)
					s.must(err)
					kept, err := parseState(data, "")
					s.must(err)
					largest, slots = max(largest, len(data)), max(slots, len(kept.Slots))
				}
				pass(10 * time.Minute) // the budget for reloads is used up
				s.calm()
				if seen := s.seen(); seen.Good.Revision != uint64(tt.n) || seen.Rollout != nil {
					t.Errorf("good is %s, the rollout %+v", seen.Good, seen.Waits)
				}
				s.end()
				t.Logf("an instance had %d maps at most, the state %d bytes with %d backends", most, largest, slots)
				// Of the last good one, the one that is rolled out, and what an instance may
				// have beside them; and a few that came since files were removed last.
				if most > 10 {
					t.Errorf("an instance had %d maps", most)
				}
				if largest > 16<<10 {
					t.Errorf("the state had %d bytes", largest)
				}
				if slots > 6 {
					t.Errorf("the state had the slots of %d backends", slots)
				}
			})
		})
	}
}

func stored(n int) push.Stored {
	return push.Stored{Kind: bind.MapFile, Name: fmt.Sprintf("%d.map", n)}
}

func TestUnneededFilesAreBounded(t *testing.T) {
	t.Parallel()
	var list []upload
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
		list = append(list, upload{stored(1000 + n), noon.Add(time.Duration(n) * time.Second)})
	}
	list = append(list, upload{Stored: stored(-1)}) // needed
	tried := forgetStuck(list, noon.Add(time.Hour))
	if len(tried) != forgottenUnneeded+1 || tried[len(tried)-1] != list[len(list)-1] || tried[0].Stored != stored(1000+2*forgottenUnneeded) {
		t.Errorf("%d are remembered, the first %v", len(tried), tried[0])
	}
	if got := forgetStuck(list, noon); len(got) != len(list) {
		t.Errorf("what nobody tried to remove is forgotten: %d of %d", len(list)-len(got), len(list))
	}
}

// What was uploaded to instances that are gone is not remembered for ever.
func TestUploadsOfInstancesThatAreGone(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	w := newSteps(t, 1, func() worldStore { return dirstore.Open(dir, dirstore.Options{}) })
	e := w.e
	e.state.Uploads = map[string][]upload{"gone": {{Stored: stored(1)}}, "pod": {{Stored: stored(1)}}}
	e.instances["pod"] = &instanceState{Instance: fleet.Instance{Name: "pod", UID: "1"}}
	for name := range w.workers {
		e.listed = append(e.listed, e.instances[name].Instance)
	}
	e.gather(noon)
	if len(e.state.Uploads["pod"]) > 0 {
		t.Error("uploads to a pod that is gone are remembered")
	}
	e.forgetAbsent(noon)
	e.forgetAbsent(noon.Add(uploadsOfAbsent - time.Second))
	if len(e.state.Uploads["gone"]) != 1 {
		t.Error("uploads to an instance that was taken out of the fleet's file are forgotten at once")
	}
	e.forgetAbsent(noon.Add(uploadsOfAbsent))
	if len(e.state.Uploads) > 0 {
		t.Errorf("they are remembered a day later: %v", e.state.Uploads)
	}
}

// An instance that an undo goes to is left alone until it is there.
func TestUndoWaitsForNoFiles(t *testing.T) {
	t.Parallel()
	e := &engine{}
	i := &instanceState{garbage: []push.Stored{stored(1)}, garbageSince: noon, reviewed: review{at: noon.Add(time.Hour)}}
	for phase, want := range map[rollout.Phase]bool{rollout.Pushing: true, rollout.Soaking: true, rollout.Undoing: false} {
		e.state.Rollout.Rollout = &rollout.Rollout{Phase: phase}
		if got := e.overdue(i); got != want {
			t.Errorf("while it is %s, removing files comes first: %v", phase, got)
		}
	}
}
