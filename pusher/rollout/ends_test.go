package rollout

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/hapsnap/hapsnap/snapshots"
)

// living is a fleet in which pushes end by themselves.
type living struct {
	*sim
	since map[snapshots.ID]time.Time // when the first instance got a snapshot
}

// run lets the fleet live for a time, in which each push succeeds within two seconds if its instance is up. each is
// called every second, before the step. run checks that an unproven snapshot is on one instance only until it has
// soaked there.
func (s living) run(t *testing.T, d time.Duration, each func(second int)) {
	t.Helper()
	for second := range int(d / time.Second) {
		s.now = s.now.Add(time.Second)
		for _, name := range sortedKeys(s.pending) {
			if s.now.Sub(s.pending[name].Since) < 2*time.Second {
				continue
			}
			outcome := Trouble
			if s.fleet[name].up {
				outcome = Applied
			}
			if err := s.end(name, outcome); err != nil {
				t.Fatal(err)
			}
		}
		each(second)
		s.settle()
		having := map[snapshots.ID]int{}
		for _, i := range s.fleet {
			having[i.running]++
			if s.since[i.running].IsZero() {
				s.since[i.running] = s.now
			}
		}
		for id, n := range having {
			if proven := id == s.state.Good || slices.Contains(s.state.Proven, id) || id == revision("r1"); !proven && n > 1 && s.now.Sub(s.since[id]) < s.policy.Soak {
				t.Fatalf("after %d seconds %d instances have %s, which has not soaked", second, n, short(id))
			}
		}
	}
}

func sortedKeys[V any](m map[string]V) []string {
	var out []string
	for name := range m {
		out = append(out, name)
	}
	slices.Sort(out)
	return out
}

// runningFleet is a fleet of instances a01, a02 and so on in three zones, which run r1.
func runningFleet(n int) living {
	s := living{newSim(), map[snapshots.ID]time.Time{}}
	s.obs.Channel, s.policy.Gate.CannotTell = true, Proceed
	for i := range n {
		name := fmt.Sprintf("a%02d", i+1)
		s.add(name, []string{"x", "y", "z"}[i%3])
		s.fleet[name].running = revision("r1")
	}
	s.obs.Want, s.obs.Intent, s.obs.MayWait = revision("r1"), "newest", true
	s.settle()
	return s
}

// count returns how many instances run a snapshot.
func (s living) count(id snapshots.ID) (n int) {
	for _, i := range s.fleet {
		if i.running == id {
			n++
		}
	}
	return n
}

// Whichever instance of twenty comes and goes every few seconds, the others get the snapshot.
func TestOneThatComesAndGoesHoldsUpNobody(t *testing.T) {
	t.Parallel()
	for _, period := range []int{7, 23} {
		for _, n := range []int{0, 1, 6, 19} {
			s := runningFleet(20)
			name := fmt.Sprintf("a%02d", n+1)
			s.obs.Want = revision("r2")
			s.run(t, 10*time.Minute, func(second int) {
				if up := second%period > 1; up != s.fleet[name].up {
					s.fleet[name].up, s.fleet[name].away = up, s.now
				}
			})
			if got := s.count(revision("r2")); got < 19 || s.state.Good != revision("r2") || len(s.state.Failed) > 0 {
				t.Errorf("with %s away every %d seconds: %d have r2, %v", name, period, got, s.said)
			}
		}
	}
}

// At whatever second of a rollout a person pins a snapshot, the fleet runs that one in the end, and after the pin
// the newest one again.
func TestPinnedAtEachSecond(t *testing.T) {
	t.Parallel()
	for _, pin := range []string{"r1", "r2", "r0", "-"} {
		for at := 0; at < 160; at += 1 + at/5 {
			s := runningFleet(6)
			newest := func() {
				s.obs.Want, s.obs.Intent, s.obs.MayWait, s.obs.Wishes, s.obs.Hold = revision("r2"), "newest", true, nil, false
			}
			newest()
			s.run(t, time.Duration(at)*time.Second, func(int) {})
			s.obs.Want, s.obs.Intent, s.obs.MayWait = revision(pin), "pin 1", false
			s.obs.Hold = pin == "-" // what is pinned cannot be read
			if !s.obs.Hold {
				s.obs.Wishes = []Wish{{s.obs.Want, s.obs.Intent}}
			}
			before := s.count(revision("r2")) + len(s.pending)
			s.run(t, 4*time.Minute, func(int) {})
			switch got := s.count(revision(pin)); {
			case pin == "-" && s.count(revision("r2")) > before:
				t.Errorf("at %d: %d had r2 or were about to, and %d have it although what is pinned is missing", at, before, s.count(revision("r2")))
			case pin != "-" && (got != 6 || s.state.Rollout != nil):
				t.Errorf("at %d: %d run %s, which is pinned: %v", at, got, pin, s.said)
			}
			newest()
			s.run(t, 4*time.Minute, func(int) {})
			if s.count(revision("r2")) != 6 || s.state.Rollout != nil {
				t.Errorf("at %d: after the pin of %s: %v", at, pin, s.said)
			}
		}
	}
}

// Of a hundred snapshots within a minute, while one soaks, the last one is what the fleet runs in the end. It waits until the
// canary, which got most of them, may reload again.
func TestManySnapshotsInASoak(t *testing.T) {
	t.Parallel()
	s := runningFleet(20)
	s.obs.Want = revision("r2")
	s.run(t, 10*time.Second, func(int) {})
	s.run(t, time.Minute, func(second int) { s.obs.Want = revision(fmt.Sprintf("r%d", 3+second*100/60)) })
	last := s.obs.Want
	s.run(t, 20*time.Minute, func(int) {})
	if s.count(last) != 20 || s.state.Rollout != nil || len(s.state.Failed) > 0 {
		t.Errorf("%d run %s: %v", s.count(last), short(last), s.said)
	}
}
