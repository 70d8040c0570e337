package pusher

import (
	"fmt"
	"os"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hapsnap/hapsnap/pusher/core"
)

// New snapshots keep coming, so there is always a rollout. What instances keep on disk, and what
// the pusher does, stays bounded. Each rollout can be undone.
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
						most = max(most, strings.Count(fmt.Sprint(i.Now().Files), "maps/"))
					}
					data, err := os.ReadFile(s.options.State)
					s.must(err)
					kept, err := core.ParseState(data, "")
					s.must(err)
					largest, slots = max(largest, len(data)), max(slots, len(kept.Slots))
				}
				pass(10 * time.Minute) // the budget of reloads is used up
				s.calm()
				if seen := s.seen(); seen.Good.Revision != uint64(tt.n) || seen.Rollout != nil {
					t.Errorf("good is %s, the rollout %+v", seen.Good, seen.Waits)
				}
				s.end()
				t.Logf("an instance had %d maps at most, the state %d bytes with %d backends", most, largest, slots)
				// An instance may have the files of the last good snapshot, of the one being rolled
				// out, of what it ran before, and of a few that came since files were last removed.
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
