package rollout

import (
	"cmp"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/hapsnap/hapsnap/snapshots"
)

// The limits do not change when reloads are forgotten.
func TestReloadsThatNoLimitCountsAreForgotten(t *testing.T) {
	t.Parallel()
	random := rand.New(rand.NewPCG(3, 4))
	for range 2000 {
		b := Budget{
			Reloads: random.IntN(15), Within: time.Duration(random.IntN(60)) * time.Minute,
			OldWorkers: random.IntN(5), HardStopAfter: time.Hour,
		}
		now := time.Date(2026, 11, 20, 0, 0, 0, 0, time.UTC)
		var all, kept []Reload
		for range random.IntN(40) {
			now = now.Add(time.Duration(random.IntN(600)) * time.Second)
			r := Reload{At: now, Gone: now.Add(time.Duration(random.IntN(100)) * time.Hour)}
			all, kept = append(all, r), append(b.counted(kept, now), r)
			at := now.Add(time.Duration(random.IntN(600)) * time.Second)
			now, kept = at, b.counted(kept, at)
			if len(kept) > b.Reloads+b.OldWorkers+2 {
				t.Fatalf("%+v: %d reloads are kept", b, len(kept))
			}
			later := func(x, y time.Time) bool { return x.After(at) != y.After(at) || (x.After(at) && !x.Equal(y)) }
			if x, y := b.often(all), b.often(kept); later(x, y) {
				t.Fatalf("%+v: the next may be at %s, and at %s after some were forgotten", b, x, y)
			}
			if x, y := b.spread(all), b.spread(kept); later(x, y) {
				t.Fatalf("%+v: the next may be at %s, and at %s after some were forgotten", b, x, y)
			}
			if x, y := b.crowded(all), b.crowded(kept); later(x, y) {
				t.Fatalf("%+v: there are fewer old workers at %s, and at %s after some were forgotten", b, x, y)
			}
			if x, y := b.leftOf(all, at), b.leftOf(kept, at); x != y {
				t.Fatalf("%+v: %d are left, and %d after some were forgotten", b, x, y)
			}
		}
	}
}

func TestFailuresAreForgottenInTheEnd(t *testing.T) {
	t.Parallel()
	var list []Failure
	for n := range 3 * keptFailures {
		list = latest(append(list, Failure{Snapshot: snapshots.ID{Revision: uint64(n)}, Recorded: n%2 == 0}))
		if len(list) > keptFailures || list[len(list)-1].Snapshot.Revision != uint64(n) {
			t.Fatalf("%d are kept, the last %+v", len(list), list[len(list)-1])
		}
	}
	if n := slices.IndexFunc(list, func(f Failure) bool { return f.Recorded }); n >= 0 && n != len(list)-1 {
		t.Errorf("what the channel shows is kept before what it does not: %+v", list[n])
	}
}

// There are ten thousand rollouts, many of which fail. Instances come and go, refuse snapshots, hang, are
// reloaded by others and have repair conflicts, and old workers live for a month. The state stays small.
func TestStateStaysSmall(t *testing.T) {
	t.Parallel()
	random := rand.New(rand.NewPCG(5, 6))
	p := Policy{
		Waves: []Size{{Count: 1}, {Percent: 100}}, Soak: 5 * time.Second, Deadline: time.Minute, Grace: 10 * time.Second,
		Retry: time.Second, RetryMax: time.Minute, Budget: Budget{Reloads: 30, Within: 10 * time.Minute, OldWorkers: 8, PerMinute: 1000, Burst: 1000},
	}
	now := time.Date(2026, 11, 20, 0, 0, 0, 0, time.UTC)
	var s State
	fleet := map[string]Seen{}
	born, pids, largest, failed := 0, 0, 0, 0
	rejected := map[string]bool{}
	running := map[string]Push{}
	for n := uint64(1); n <= 10_000; n++ {
		want := snapshots.ID{Revision: n, Short: fmt.Sprintf("%010x", n)}
		if random.IntN(3) == 0 || len(fleet) == 0 { // pods come and go
			born++
			name := fmt.Sprintf("edge-%d", born)
			fleet[name] = Seen{Name: name, Reachable: true, HardStopAfter: 30 * 24 * time.Hour}
		}
		for name := range fleet {
			if len(fleet) > 8 {
				delete(fleet, name)
				delete(running, name)
			}
		}
		for range 2 + random.IntN(4) {
			now = now.Add(time.Duration(random.IntN(8000)) * time.Millisecond)
			o := Observation{Want: want, Channel: random.IntN(10) > 0, Reloads: map[string]int{}}
			for short := range rejected {
				o.Rejected = append(o.Rejected, short)
			}
			for name, i := range fleet {
				i.Reachable = random.IntN(12) > 0
				if random.IntN(40) == 0 { // something else restarts it with another configuration
					pids++
					i.PID, i.Running, i.Started = pids, snapshots.ID{}, now
					o.Reloads[name] = pids
				}
				if push, pushed := running[name]; pushed && random.IntN(3) > 0 {
					r := anyResult(random, name, push.Snapshot)
					if r.Outcome == Applied {
						pids++
						i.PID, i.Running, i.Started, r.PID = pids, push.Snapshot, now, pids
					}
					o.Results = append(o.Results, r)
					delete(running, name)
				}
				fleet[name] = i
				o.Instances = append(o.Instances, i)
			}
			slices.SortFunc(o.Instances, func(a, b Seen) int { return cmp.Compare(a.Name, b.Name) })
			var pushes []Push
			s, pushes, _ = p.Step(s, o, now)
			for _, push := range pushes {
				running[push.Instance] = push
			}
			for _, f := range s.Unrecorded() {
				if o.Channel && random.IntN(2) == 0 {
					rejected[f.Snapshot.Short] = true
				}
			}
		}
		failed = max(failed, len(s.Failed))
		data, err := json.Marshal(s)
		if err != nil {
			t.Fatal(err)
		}
		largest = max(largest, len(data))
		if len(data) > 64<<10 {
			t.Fatalf("after %d rollouts the state has %d bytes: %.3000s", n, len(data), data)
		}
		for short := range rejected { // the channel forgets too
			if len(rejected) > 150 {
				delete(rejected, short)
			}
		}
	}
	t.Logf("the largest state had %d bytes, with %d failures at most", largest, failed)
	if failed < keptFailures {
		t.Errorf("%d failures at most: the test tests little", failed)
	}
}

// anyResult is a random result of a push.
func anyResult(random *rand.Rand, name string, id snapshots.ID) Result {
	r := Result{Instance: name, Snapshot: id, Outcome: Applied, Reloaded: true}
	switch random.IntN(6) {
	case 0:
		r.Outcome, r.Error = Refused, "refused: no"
	case 1:
		r.Outcome, r.Error = Trouble, "it hangs"
	case 2:
		r.Outcome = []Outcome{Applied, NotBegun}[random.IntN(2)]
	}
	return r
}

// interruption is the end of a pusher, and the beginning of another.
type interruption struct {
	down time.Duration // time without a pusher
	set  time.Duration // by how much the clock was set meanwhile, or another machine's differs
}

var interruptions = []interruption{
	{0, 0}, {10 * time.Second, 0}, {time.Hour, 0}, {30 * 24 * time.Hour, 0},
	{0, 10 * time.Second}, {0, time.Hour}, {time.Minute, 30 * 24 * time.Hour},
	{0, -10 * time.Second}, {0, -time.Hour}, {time.Minute, -30 * 24 * time.Hour}, {time.Hour, -time.Hour},
}

// interrupt begins another pusher with the saved state.
func (s *sim) interrupt(t *testing.T, how interruption) {
	t.Helper()
	saved := s.now
	s.now = s.now.Add(how.down + how.set)
	for _, i := range s.fleet {
		if !i.started.IsZero() {
			i.started = i.started.Add(how.set) // it follows from the worker's age
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

// tick takes a step, and ends the pushes of the step before.
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

// fleetOf returns instances that run a first snapshot, and should run a second.
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

// untilRun counts the steps until all instances run what is wanted.
func (s *sim) untilRun(t *testing.T) (steps int) {
	t.Helper()
	for ; s.state.Good != s.obs.Want || s.state.Rollout != nil; steps++ {
		if s.tick(t, Applied); steps > 200 || len(s.state.Failed) > 0 {
			t.Fatalf("after %d steps the rollout is %+v, and failed are %+v", steps, s.state.Rollout, s.state.Failed)
		}
	}
	return steps
}

// A rollout is interrupted at any step, for any time, and the clock is set meanwhile. It ends as it would have
// otherwise: nothing is rejected, no soak is shorter, and nothing waits for the old time of the clock.
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
			// There may be one more step, since pushes under way begin again.
			if steps := n + s.untilRun(t); steps < whole || steps > whole+2 {
				t.Errorf("%+v after step %d: it takes %d steps, and %d without", how, n, steps, whole)
			}
		}
	}
}

// The grace of an unreachable instance does not include the time without a pusher.
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

// A failed snapshot stays rejected. An instance that refused something is tried again when its wait is over,
// whatever the clock shows.
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
		// An instance refuses the last good snapshot for a fault of its own.
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

// The used part of the budget stays used, and the wait for it is no longer than it says.
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

// Blackouts follow the wall clock. A clock that is set into a blackout, or out of it, counts from then on.
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

// If the clock is set while the process runs, no remembered time moves: times from the state count by the
// monotonic clock.
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
