package pusher

import (
	"testing"
	"testing/synctest"
	"time"
)

// A wave whose only instance cannot be pushed to begins anew in every step, and a soak while an instance is away. The
// state, of which that is a part, is saved with what is reported all the same, and not again and again: in a cluster each
// save is a write of a Secret.
func TestStateIsNotSavedInEveryStep(t *testing.T) {
	t.Parallel()
	for name, ails := range map[string][]string{
		"a push that fails":   {"answers", "500", "POST", "/configuration/raw"},
		"an instance is away": {"is", "gone"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				s := newStory(t, "edge-1", "edge-2")
				s.begin()
				s.command("publish 1")
				s.runs("1", 2)
				s.instance("edge-1", ails)
				s.instance("edge-2", ails)
				s.command("publish 2")
				pass(time.Minute)
				s.keeps.count(50 * time.Millisecond)
				pass(5 * time.Minute)
				saves := s.keeps.count(0)
				if limit := 5*60/3 + 200; saves > limit { // what is reported every three seconds, and some for each step that pushes; in every step it would be 6,000
					t.Errorf("the state was saved %d times in five minutes, want %d at most", saves, limit)
				}
				for _, name := range []string{"edge-1", "edge-2"} {
					s.instance(name, []string{"is", "well"})
				}
				s.runs("2", 2)
				s.end()
			})
		})
	}
}
