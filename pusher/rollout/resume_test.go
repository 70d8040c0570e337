package rollout

import (
	"encoding/json"
	"fmt"
	"testing"
	"time"

	"github.com/hapsnap/hapsnap/snapshots"
)

// interruption is a pusher that ends, and another one that begins.
type interruption struct {
	down time.Duration // nobody runs for so long
	set  time.Duration // by this the clock was set meanwhile, or another machine's differs
}

var interruptions = []interruption{
	{0, 0}, {10 * time.Second, 0}, {time.Hour, 0}, {30 * 24 * time.Hour, 0},
	{0, 10 * time.Second}, {0, time.Hour}, {time.Minute, 30 * 24 * time.Hour},
	{0, -10 * time.Second}, {0, -time.Hour}, {time.Minute, -30 * 24 * time.Hour}, {time.Hour, -time.Hour},
}

// interrupt has another pusher begin with the state that was saved.
func (s *sim) interrupt(t *testing.T, how interruption) {
	t.Helper()
	saved := s.now
	s.now = s.now.Add(how.down + how.set)
	for _, i := range s.fleet {
		if !i.started.IsZero() {
			i.started = i.started.Add(how.set) // which is told by the age of the worker
		}
	}
	data, err := json.Marshal(s.state)
	if err != nil {
		t.Fatal(err)
	}
	var state State
	if err := json.Unmarshal(data, &state); err != nil {
		t.Fatal(err)
	}
	clear(s.pending)
	s.obs.Results = nil
	s.state = state.Resume(saved, s.now)
}

// tick takes a step, and ends the pushes that were begun in the one before.
func (s *sim) tick(t *testing.T, outcome Outcome) (pushes []Push) {
	t.Helper()
	for name := range s.pending {
		if err := s.end(name, outcome); err != nil {
			t.Fatal(err)
		}
	}
	s.state, pushes, s.waits = s.policy.Step(s.state, s.observe(), s.now)
	s.obs.Results = nil
	for _, p := range pushes {
		s.pending[p.Instance] = p
	}
	s.now = s.now.Add(5 * time.Second)
	return pushes
}

// fleetOf has instances that run a first snapshot, and are to run a second.
func fleetOf(names ...string) *sim {
	s := newSim()
	s.obs.Channel, s.obs.Intent = true, "newest"
	for _, name := range names {
		s.add(name, "x")
		s.fleet[name].running = revision("r1")
		s.fleet[name].started = simBegin.Add(-time.Hour)
	}
	s.state.Good, s.obs.Want = revision("r1"), revision("r2")
	s.policy.Soak, s.policy.Deadline = 30*time.Second, 2*time.Minute
	return s
}

// untilRun counts the steps until all run what is wanted.
func (s *sim) untilRun(t *testing.T) (steps int) {
	t.Helper()
	for ; s.state.Good != s.obs.Want || s.state.Rollout != nil; steps++ {
		if s.tick(t, Applied); steps > 200 || len(s.state.Failed) > 0 {
			t.Fatalf("after %d steps the rollout is %+v, and failed are %+v", steps, s.state.Rollout, s.state.Failed)
		}
	}
	return steps
}

// A rollout is interrupted at any step, for any time, and the clock is set meanwhile. It
// comes to its end as without that: nothing is rejected, nothing is soaked for less, and
// nothing waits until it is that late again.
func TestInterruptionsAndClocks(t *testing.T) {
	t.Parallel()
	whole := fleetOf("a", "b", "c", "d").untilRun(t)
	for n := range whole {
		for _, how := range interruptions {
			s := fleetOf("a", "b", "c", "d")
			for range n {
				s.tick(t, Applied)
			}
			s.interrupt(t, how)
			// One step more is taken: pushes that were under way are begun again.
			if steps := n + s.untilRun(t); steps < whole || steps > whole+2 {
				t.Errorf("%+v after step %d: it takes %d steps, and %d without", how, n, steps, whole)
			}
		}
	}
}

// An instance that went out of reach has its grace in the time that somebody looks.
func TestGraceAfterAnInterruption(t *testing.T) {
	t.Parallel()
	for _, how := range interruptions {
		s := fleetOf("a", "b", "c", "d")
		for range 3 {
			s.tick(t, Applied)
		}
		var canary string
		for _, h := range s.state.Rollout.Touched {
			canary = h.Instance
		}
		s.fleet[canary].up = false
		s.tick(t, Applied)
		s.interrupt(t, how)
		if s.tick(t, Applied); len(s.state.Failed) > 0 {
			t.Errorf("%+v: %s", how, s.state.Failed[0].Reason)
		}
		s.fleet[canary].up = true
		s.untilRun(t)
	}
}

// What failed stays rejected, and an instance that refused something is tried again when
// its wait is over, whatever the clock shows.
func TestRejectionsAndClocks(t *testing.T) {
	t.Parallel()
	for _, how := range interruptions {
		s := fleetOf("a", "b", "c", "d")
		for len(s.state.Failed) == 0 {
			s.tick(t, Refused)
		}
		s.interrupt(t, how)
		for range 20 {
			for _, p := range s.tick(t, Applied) {
				if p.Snapshot == s.obs.Want {
					t.Fatalf("%+v: %s is tried again", how, p.Snapshot)
				}
			}
		}
		// The last good one is refused by an instance for a fault of its own.
		s.fleet["b"].running = snapshots.ID{}
		s.tick(t, Applied)
		s.tick(t, Faulty)
		s.interrupt(t, how)
		for steps := 0; s.fleet["b"].running != revision("r1"); steps++ {
			if s.tick(t, Applied); steps > int(s.policy.RetryMax/(5*time.Second))+2 {
				t.Fatalf("%+v: it is not tried again: %+v", how, s.state.Instances["b"])
			}
		}
	}
}

// The budget that was spent stays spent, and is not waited for longer than it says.
func TestBudgetAndClocks(t *testing.T) {
	t.Parallel()
	for _, how := range interruptions {
		s := fleetOf("a", "b", "c", "d")
		s.policy.Budget = Budget{PerMinute: 2, Burst: 1, Reloads: 3, Within: 10 * time.Minute, HardStopAfter: time.Minute}
		for range 4 {
			s.tick(t, Applied)
		}
		s.interrupt(t, how)
		if steps := s.untilRun(t); steps > 60 {
			t.Errorf("%+v: it takes %d steps", how, steps)
		}
	}
}

// Blackouts go by the clock on the wall: one that is set into a blackout, or out of it,
// counts from then on.
func TestBlackoutsAndClocks(t *testing.T) {
	t.Parallel()
	for set, begins := range map[time.Duration]bool{0: true, time.Hour: false, 3 * time.Hour: true, -20 * time.Hour: true, -23 * time.Hour: false} {
		s := fleetOf("a", "b")
		s.obs.MayWait = true
		s.policy.Blackouts = []Blackout{{From: 13 * time.Hour, To: 14 * time.Hour}} // it is noon
		s.interrupt(t, interruption{set: set})
		pushes := s.tick(t, Applied)
		if begun := len(pushes) > 0; begun != begins {
			t.Errorf("%s: a wave begins: %v; the waits are %v", set, begun, fmt.Sprint(s.waits))
		}
	}
}

// While the process runs, setting the clock moves nothing that it remembers: what was read
// from the state is counted by a clock that nobody sets.
func TestResumedTimesAreMonotonic(t *testing.T) {
	t.Parallel()
	now := time.Now()
	s := State{Rollout: &Rollout{Since: now.Round(0).Add(-time.Minute)}}
	got := s.Resume(now.Round(0), now).Rollout.Since
	if got == got.Round(0) {
		t.Errorf("%s is told by the clock on the wall", got)
	}
	if d := now.Sub(got); d != time.Minute {
		t.Errorf("it was %s ago", d)
	}
}
