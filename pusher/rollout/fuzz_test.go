package rollout

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"reflect"
	"slices"
	"testing"
	"time"

	"github.com/hapsnap/hapsnap/snapshots"
)

// FuzzStep drives a fleet of six instances in three zones by random events. After every step it checks what
// must always hold. At the end it checks that a world in which everything succeeds converges.
func FuzzStep(f *testing.F) {
	f.Add([]byte{})
	f.Add([]byte{0x01, 0x10, 0x20, 0x31, 0x40, 0x51, 0x60, 0x70, 0x80, 0x90})
	f.Add([]byte("\x02\x11\x72\x11\x72\x11\x72\x03\x21\x22\x23\x24\x91\x11\x12\x13"))
	f.Add([]byte("\x01\x10\xa0\x10\xa0\x02\x30\x90\xb0\x10\x11\x12\x13\x14\x15\xc0\xa0"))
	f.Fuzz(func(t *testing.T, events []byte) {
		w := newWorld(t)
		for _, e := range events[:min(len(events), 400)] {
			w.happen(e>>4, int(e&0x0f))
			w.step()
		}
		w.converge()
	})
}

var fuzzNames = []string{"a", "b", "c", "d", "e", "f"}

type world struct {
	*sim
	t      *testing.T
	ledger *ledger
}

func newWorld(t *testing.T) world {
	t.Helper()
	w := world{newSim(), t, &ledger{}}
	w.policy.Budget = fuzzBudget
	w.policy.Blackouts = []Blackout{{From: 12*time.Hour + 5*time.Minute, To: 12*time.Hour + 12*time.Minute}}
	w.obs.Channel = true
	for i, name := range fuzzNames {
		w.add(name, []string{"x", "y", "z"}[i%3])
	}
	return w
}

// happen is one event of the fuzzer's choice.
func (w world) happen(kind byte, n int) {
	name := fuzzNames[n%len(fuzzNames)]
	switch kind {
	case 0: // a snapshot is wanted, or none
		w.wish(n)
	case 1, 2:
		w.endAny(name, Applied)
	case 3:
		w.endAny(name, Refused)
	case 4:
		w.endAny(name, []Outcome{Trouble, NotBegun}[n%2])
	case 5, 6:
		if w.fleet[name] != nil {
			w.fleet[name].up = kind == 6
		}
	case 7, 8:
		w.now = w.now.Add(time.Duration(n+1) * 5 * time.Second)
	case 9:
		w.obs.Hold = n%2 == 0
	case 10: // the channel shows what failed, or a person retries
		w.obs.Rejected = nil
		for _, f := range w.state.Failed[:len(w.state.Failed)-n%(len(w.state.Failed)+1)] {
			if !f.Withdrawn(w.obs.Wishes) {
				w.obs.Rejected = append(w.obs.Rejected, f.Snapshot.Short)
			}
		}
	case 11:
		w.killed(n)
	case 12:
		w.leaveOrJoin(name)
	case 13:
		w.serve(name, n)
	case 14:
		w.person(n)
	default:
		w.disturb(name, n)
	}
}

// wish makes another snapshot wanted, or none. It may also want the same again on behalf of a person, which
// withdraws its rejection.
func (w world) wish(n int) {
	w.obs.Wishes, w.obs.Intent, w.obs.MayWait = nil, "newest", n%2 == 0
	if n < 12 || w.obs.Want.IsZero() {
		w.obs.Want = snapshots.ID{}
		if n > 0 {
			w.obs.Want = snapshots.ID{Revision: uint64(n), Short: "0000000000"[:9] + string(rune('a'+n%6))}
		}
		return
	}
	w.orders++
	w.obs.Intent, w.obs.MayWait = fmt.Sprintf("pin %d", w.orders), false
	w.obs.Wishes = []Wish{{w.obs.Want, w.obs.Intent}}
	w.obs.Rejected = slices.DeleteFunc(w.obs.Rejected, func(short string) bool { return short == w.obs.Want.Short })
}

// person gives an order about the present rollout, or about another one.
func (w world) person(n int) {
	w.orders++
	o := Order{Snapshot: w.obs.Want, Mark: fmt.Sprint(w.orders), Full: n%4 == 1}
	if r := w.state.Rollout; r != nil && n%3 > 0 {
		o.Snapshot = r.Target
	}
	if n%2 == 0 {
		w.obs.Abort = o
	} else {
		w.obs.Promotion = o
	}
}

// serve makes all instances count requests. Some requests fail, on one instance or on all. A backend may have
// no servers, on one instance or on all.
func (w world) serve(name string, n int) {
	w.sampled = true
	for other, i := range w.fleet {
		c := Counters{Requests: int64(n * 20), Connections: int64(n)}
		if n%3 == 0 || (n%3 == 1 && other == name) {
			c.Errors = c.Requests / 2
		}
		if i.down = nil; n%5 == 0 || (n%5 == 1 && other == name) {
			i.down = []string{"web"}
		}
		i.counted = i.counted.plus(c)
	}
}

func (w world) endAny(name string, outcome Outcome) {
	if p, ok := w.pending[name]; ok {
		if err := w.end(name, outcome); err != nil {
			w.t.Fatal(err)
		}
		if last := w.obs.Results[len(w.obs.Results)-1]; last.Outcome == NotBegun || last.Outcome == Applied && !last.Reloaded {
			w.ledger.giveBack(p)
		}
	}
}

// killed ends the pusher. Some of its pushes still succeed.
func (w world) killed(n int) {
	for i, name := range fuzzNames {
		if _, ok := w.pending[name]; ok && w.fleet[name] != nil && (n>>(i%4))&1 == 1 {
			w.take(name)
		}
	}
	clear(w.pending)
	w.state = w.state.Resume(w.now, w.now)
}

func (w world) leaveOrJoin(name string) {
	if w.fleet[name] != nil && len(w.fleet) > 1 {
		delete(w.fleet, name)
		w.ledger.left(name)
	} else if w.fleet[name] == nil {
		w.add(name, "x")
	}
}

func (w world) disturb(name string, n int) {
	i := w.fleet[name]
	switch {
	case i == nil:
	case n%3 == 0:
		i.pid += 1000
	case n%3 == 1:
		i.stale = true
	default:
		i.running = snapshots.ID{}
	}
}

// step takes a step, and checks it.
func (w world) step() {
	o := w.observe()
	o.Hold = o.Hold || w.rejected(o)
	before, err := json.Marshal(w.state)
	if err != nil {
		w.t.Fatal(err)
	}
	previous := w.state
	state, pushes, _ := w.policy.Step(w.state, o, w.now)
	if after, _ := json.Marshal(previous); string(after) != string(before) {
		w.t.Fatalf("Step changed the state that it was given:\n%s\n%s", before, after)
	}
	w.obs.Results = nil
	w.state = w.stored(state)
	for _, p := range pushes {
		w.check(p, previous, o)
		w.checkBlackout(p, previous, o)
		w.ledger.check(w.t, p)
		w.pending[p.Instance] = p
	}
	w.checkFlights()
	w.checkWish(o)
	w.checkRejected(o)
	w.checkAbort(previous, o)
	w.checkVerdict(previous, o)
	w.checkZones(previous, o)
}

// rejected reports whether the channel holds because the wanted snapshot has failed. The channel may not show
// that yet. If a person wished for the snapshot, it must have failed for that wish.
func (w world) rejected(o Observation) bool {
	return slices.Contains(o.Rejected, o.Want.Short) || slices.ContainsFunc(w.state.Failed, func(f Failure) bool {
		return f.Snapshot.Short == o.Want.Short && !f.Recorded && (o.Intent == "newest" || f.Intent == o.Intent)
	})
}

// stored returns the state as a process reads it after a restart.
func (w world) stored(s State) State {
	data, err := json.Marshal(s)
	if err != nil {
		w.t.Fatal(err)
	}
	var out State
	if err := json.Unmarshal(data, &out); err != nil {
		w.t.Fatalf("read the state back: %v\n%s", err, data)
	}
	if again, _ := json.Marshal(out); string(again) != string(data) {
		w.t.Fatalf("the state is another one when it is read back:\n%s\n%s", data, again)
	}
	return out
}

// check checks a push against the rules.
func (w world) check(p Push, before State, o Observation) {
	if _, busy := w.pending[p.Instance]; busy {
		w.t.Fatalf("second push to %s", p.Instance)
	}
	if i := w.fleet[p.Instance]; i == nil || !i.up {
		w.t.Fatalf("push to %s, which is not there", p.Instance)
	}
	if p.Snapshot.IsZero() {
		w.t.Fatalf("push of nothing to %s", p.Instance)
	}
	r := w.state.Rollout
	unproven := p.Snapshot != w.state.Good
	switch {
	case p.Purpose == Wave:
		if o.Hold || r == nil || r.Phase != Pushing || r.Target != p.Snapshot || (p.Snapshot != o.Want && !w.finishing(w.state, o) && !w.finishing(before, o) && !w.dark(o)) || !slices.Contains(r.Members, p.Instance) {
			w.t.Fatalf("push %+v is not of the wave %+v (want %s, hold %v)", p, r, o.Want, o.Hold)
		}
		if _, failed := w.state.Failure(p.Snapshot, o.Intent); failed {
			w.t.Fatalf("push of %s, which failed", p.Snapshot)
		}
	case p.Purpose == Reshape:
		if w.fleet[p.Instance].running.Short != p.Snapshot.Short {
			w.t.Fatalf("%+v is a reshape of what does not run", p)
		}
	case unproven:
		w.t.Fatalf("push %+v is neither of a wave nor the good snapshot %s", p, w.state.Good)
	}
}

// finishing reports whether a newer snapshot may wait for the present rollout of a state. A step decides that
// first, before it notices which instances lost the target.
func (w world) finishing(s State, o Observation) bool {
	if s.Rollout == nil {
		return false
	}
	done := 0
	for _, h := range s.Rollout.Touched {
		if h.Applied && h.Snapshot == w.state.Rollout.Target && w.fleet[h.Instance] != nil {
			done++
		}
	}
	first := s.Rollout.Unfinished
	return o.MayWait && (2*done > len(w.fleet) || !first.IsZero() && w.now.Sub(first) > time.Minute)
}

// dark reports whether a newer snapshot has to wait for the end of a blackout.
func (w world) dark(o Observation) bool {
	_, dark := w.policy.blackout(w.now)
	return dark && o.MayWait && !slices.Contains(o.Rejected, w.state.Rollout.Target.Short)
}

// checkFlights compares the pushes under way with those of the state.
func (w world) checkFlights() {
	flights := map[string]Push{}
	for name, i := range w.state.Instances {
		if i.Push != nil {
			p := *i.Push
			p.Instance = name
			flights[name] = p
		}
	}
	if !reflect.DeepEqual(flights, w.pending) {
		w.t.Fatalf("under way are %v, the state says %v", w.pending, flights)
	}
}

// converge lets everything succeed from now on. It checks that the whole fleet comes to run what is wanted. If
// the last wish was for a failed snapshot, it wants a new one.
func (w world) converge() {
	w.obs.Hold = false
	for _, i := range w.fleet {
		i.up, i.down = true, nil
	}
	for range 400 {
		if w.rejected(w.obs) || w.obs.Want.IsZero() {
			w.obs.Intent, w.obs.MayWait, w.obs.Wishes = "newest", true, nil
			w.obs.Want = snapshots.ID{Revision: w.obs.Want.Revision + 100, Short: fmt.Sprintf("%010x", w.now.Unix())}
		}
		w.step()
		if w.settled() {
			return
		}
		w.now = w.now.Add(5 * time.Second)
		for _, name := range fuzzNames {
			w.endAny(name, Applied)
		}
	}
	w.t.Fatalf("the fleet does not come to rest: want %s, good %s, rollout %+v, pushes %v, instances %+v",
		w.obs.Want, w.state.Good, w.state.Rollout, w.pending, w.observe().Instances)
}

// settled reports whether all instances run what is wanted, and nothing is in progress.
func (w world) settled() bool {
	if w.state.Rollout != nil || w.state.Good != w.obs.Want || len(w.pending) > 0 {
		return false
	}
	for _, i := range w.fleet {
		if i.running.Short != w.obs.Want.Short || i.stale {
			return false
		}
	}
	return true
}

// TestStepAtRandom is FuzzStep without a fuzzer.
func TestStepAtRandom(t *testing.T) {
	for seed := range uint64(300) {
		random := rand.New(rand.NewPCG(seed, 1))
		w := newWorld(t)
		for range 20 + seed%200 {
			w.happen(byte(random.IntN(16)), random.IntN(16))
			w.step()
		}
		w.converge()
	}
}
