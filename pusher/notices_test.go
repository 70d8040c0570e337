package pusher

import (
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/hapsnap/hapsnap/pusher/dataplane/dataplanetest"
	"github.com/hapsnap/hapsnap/pusher/notify"
)

// People are notified of what becomes of rollouts, once of each.
func TestNotices(t *testing.T) {
	t.Parallel()
	r := newRig(t, dataplanetest.V32, "a", "b")
	var mu sync.Mutex
	var got []notify.Notice
	r.options.Notify = func(n notify.Notice) {
		mu.Lock()
		defer mu.Unlock()
		got = append(got, n)
	}
	r.endpoints(echo(t, "one"))
	good := r.publish(config("1", ""))
	r.allRunAfter(good)
	bad := r.publish(config("2", broken))
	r.until("the broken one is undone", func(s Status) bool { return len(s.Rejected) == 1 && s.Rollout == nil })
	r.kill()

	mu.Lock()
	defer mu.Unlock()
	var events []notify.Event
	for _, n := range got {
		events = append(events, n.Event)
	}
	want := []notify.Event{notify.RolloutBegins, notify.RolloutDone, notify.RolloutBegins, notify.RolloutFailed, notify.RolloutUndone}
	if !slices.Equal(events, want) {
		t.Fatalf("notices are %v, want %v", events, want)
	}
	if n := got[3]; n.Snapshot != bad.String() || !strings.Contains(n.Text, "rollout of "+bad.String()+" failed: a: refused: ") || n.Time.IsZero() {
		t.Errorf("the failure is told as %+v", n)
	}
	if n := got[4]; !strings.Contains(n.Text, "the fleet runs "+good.String()) {
		t.Errorf("the undoing is told as %+v", n)
	}
}
