package pusher

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/hapsnap/hapsnap/pusher/rollout"
)

// The first push of a wave may fail, or an instance may be away in a soak. Meanwhile the state, and
// the status which is a part of it, are not saved again and again: in a cluster, each save writes a
// Secret.
func TestStateIsNotSavedInEveryStep(t *testing.T) {
	t.Parallel()
	const heartbeats = 5 * 60 / 5 // in five minutes
	for name, test := range map[string]struct {
		ails  []string
		soaks bool // the fault comes after edge-1 has the snapshot
		limit int
	}{
		"a push that fails":                       {ails: []string{"answers", "500", "POST", "/configuration/raw"}, limit: heartbeats + 40}, // each failed push is reported
		"nothing happens":                         {limit: heartbeats + 5},
		"an instance is away":                     {ails: []string{"is", "gone"}, limit: heartbeats + 5},
		"an instance is away while it is soaking": {ails: []string{"is", "gone"}, soaks: true, limit: heartbeats + 5},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				s := newStory(t, "edge-1", "edge-2")
				s.begin()
				s.command("publish 1")
				s.runs("1", 2)
				if test.soaks {
					s.command("publish 2")
					for s.seen().Phase() != rollout.Soaking {
						pass(100 * time.Millisecond)
					}
				}
				if test.ails != nil {
					s.instance("edge-1", test.ails)
				}
				if test.ails != nil && !test.soaks {
					s.instance("edge-2", test.ails)
					s.command("publish 2")
				}
				pass(time.Minute)
				s.keeps.count(50 * time.Millisecond)
				pass(5 * time.Minute)
				if saves := s.keeps.count(0); saves > test.limit { // a save in every step would be 6,000
					t.Errorf("the state was saved %d times in five minutes, want %d at most", saves, test.limit)
				}
				for _, name := range []string{"edge-1", "edge-2"} {
					s.instance(name, []string{"is", "well"})
				}
				if test.ails != nil {
					s.runs("2", 2)
				}
				s.end()
			})
		})
	}
}
