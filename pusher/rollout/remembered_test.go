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

// What a limit says is the same whatever was forgotten.
func TestReloadsThatNoLimitCountsAreForgotten(t *testing.T) {
	t.Parallel()
	random := rand.New(rand.NewPCG(3, 4))
	for range 2000 {
		b := Budget{
			Reloads: random.IntN(5), Within: time.Duration(random.IntN(60)) * time.Minute,
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

// Ten thousand rollouts, of which many fail, instances that come and go, refuse, hang, are
// reloaded by others and fight, and old workers that live for a month: the state stays small.
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
		if random.IntN(3) == 0 || len(fleet) == 0 { // as pods do
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
				if random.IntN(40) == 0 { // somebody else restarts it with something else
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
		for short := range rejected { // the channel forgets as well
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

// anyResult is how a push may end.
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
