package core

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/hapsnap/hapsnap/pusher/dataplane"
	"github.com/hapsnap/hapsnap/pusher/fleet"
	"github.com/hapsnap/hapsnap/pusher/instance"
	"github.com/hapsnap/hapsnap/pusher/push"
	"github.com/hapsnap/hapsnap/pusher/rollout"
	"github.com/hapsnap/hapsnap/snapshots"
	"github.com/hapsnap/hapsnap/snapshots/channel"
)

// readStore is the part of a store that a pusher needs.
type readStore interface {
	View(ctx context.Context) (channel.View, error)
	Get(ctx context.Context, id snapshots.ID) (snapshots.Snapshot, error)
	UpdateChannel(ctx context.Context, subject string, now time.Time, edit func(*channel.Channel) error) error
}

// worldStore is a store with its writers.
type worldStore interface {
	readStore
	Publish(ctx context.Context, d snapshots.Draft) (snapshots.ID, bool, error)
	Delete(ctx context.Context, ids ...snapshots.ID) error
	Close() error
}

// steps is a store, the machine of a pusher that reads it, and instances that get pushes and carry them out or
// not. It has a clock of its own.
type steps struct {
	t      *testing.T
	random *rand.Rand
	open   func() worldStore
	store  worldStore
	gone   bool   // the store is unreachable
	saved  []byte // the saved state
	e      *Machine
	now    time.Time

	model model // of the store
	seen  model // as the machine saw the store last
	known []snapshots.ID
	whole map[string]snapshots.Digest // the digests by their short forms
	// content has what was published, by the short form of its digest.
	content map[string]int
	named   int             // how often people named a snapshot
	tried   map[string]int  // for each content, the number of the wish for which it was tried
	found   map[string]bool // contents that the pusher rejected

	workers map[string]worker
	pending map[string]rollout.Push
	pids    int
	story   []string
}

// worker is what an instance really runs.
type worker struct {
	id      snapshots.ID
	pid     int
	started time.Time
}

func newSteps(t *testing.T, seed uint64, open func() worldStore) *steps {
	t.Helper()
	w := &steps{
		t: t, random: rand.New(rand.NewPCG(seed, 1)), open: open, store: open(), now: noon,
		model: newModel(), seen: newModel(), whole: map[string]snapshots.Digest{}, content: map[string]int{},
		tried: map[string]int{}, found: map[string]bool{},
		workers: map[string]worker{"a": {}, "b": {}, "c": {}}, pending: map[string]rollout.Push{},
	}
	w.begin()
	return w
}

// begin starts the pusher from its saved state.
func (w *steps) begin() {
	w.t.Helper()
	s, err := ParseState(w.saved, "the world")
	if err != nil {
		w.t.Fatal(err)
	}
	soak, settings := 10*time.Second, usual
	settings.Soak = &soak
	w.e = New(settings, s, nil, w.now)
	w.e.fleetName, w.e.view.Fleet = "edge", "edge"
	w.e.membership.takePolicy(rollout.Policy{
		Waves: []rollout.Size{{Count: 1}, {Percent: 100}}, Deadline: 5 * time.Minute, Grace: 10 * time.Second,
		Retry: time.Second, RetryMax: 2 * time.Minute,
	}, w.now)
	w.seen = newModel()
	clear(w.pending)
	for name, runs := range w.workers {
		i := &instanceState{Instance: fleet.Instance{Name: name}, asked: true}
		i.takeInfo(w.says(runs), w.now)
		w.e.instances[name] = i
	}
}

// says returns the info of a worker.
func (w *steps) says(runs worker) dataplane.RuntimeInfo {
	info := dataplane.RuntimeInfo{PID: runs.pid, Uptime: w.now.Sub(runs.started)}
	if !runs.id.IsZero() {
		info.Node = runs.id.String() + "_00000000"
	}
	return info
}

// fatalf fails with the story so far.
func (w *steps) fatalf(format string, args ...any) {
	w.t.Helper()
	for _, line := range w.story {
		w.t.Log(line)
	}
	w.t.Fatalf(format, args...)
}

func (w *steps) tell(format string, args ...any) {
	w.story = append(w.story, w.now.Format("15:04:05 ")+fmt.Sprintf(format, args...))
}

var errGone = errors.New("no route to the store")

// step takes a turn of the machine. The world carries out the effects.
func (w *steps) step() {
	w.t.Helper()
	view, err := channel.View{}, errGone
	if !w.gone {
		view, err = w.store.View(w.t.Context())
		if err != nil {
			w.fatalf("view: %v", err)
		}
		w.seen = w.model.clone()
	}
	e := w.e
	e.takeView(view, err, w.now)
	e.decision = decide(e.view, e.state.Rollout.Failed, w.now)
	e.tellInstances()
	w.read()
	before := e.state.Rollout
	next, pushes, waits := e.policy.Step(before, e.rolling.rolloutInput(w.now), w.now)
	w.check(before, next, pushes)
	if !w.commit(next, waits) {
		w.fatalf("the state is not saved")
	}
	if is, was := next.Rollout, before.Rollout; is != nil && (was == nil || was.Target != is.Target) {
		w.tried[is.Target.Short] = w.seen.wants(w.now).number
	}
	for _, p := range pushes {
		e.instances[p.Instance].begin(workPush)
		w.pending[p.Instance] = p
	}
	w.record()
}

// read fills the snapshot cache with what is needed and exists.
func (w *steps) read() {
	for _, id := range w.e.snapshotCache.Due(slices.SortedFunc(maps.Keys(w.e.inUse()), snapshots.ID.Compare), w.now) {
		s, err := snapshots.Snapshot{}, errGone
		if !w.gone {
			s, err = w.store.Get(w.t.Context(), id)
		}
		w.e.snapshotCache.Take(id, s, err, w.now)
	}
	w.e.snapshotCache.Keep(w.e.inUse())
}

// commit saves a step, and the world begins its pushes. It returns false if the save fails.
func (w *steps) commit(next rollout.State, waits []rollout.Wait) bool {
	saved, done := w.e.commit(next, waits, w.now)
	if saved != nil {
		w.saved = saved
	}
	return done
}

// check compares a step with the model.
func (w *steps) check(before, next rollout.State, pushes []rollout.Push) {
	w.t.Helper()
	want := w.seen.wants(w.now)
	d := w.e.decision
	if len(before.Unrecorded()) == 0 && (d.ID != want.id || d.Hold != want.id.IsZero()) {
		w.fatalf("decided for %q (hold %v: %s), want %q", d.ID, d.Hold, d.Message, want.id)
	}
	for _, p := range pushes {
		w.tell("push %s to %s (%s)", p.Snapshot, p.Instance, p.Purpose)
		finishing := before.Rollout != nil && before.Rollout.Target == p.Snapshot && !want.order && !w.seen.rejected[p.Snapshot.Short]
		switch {
		case p.Purpose == rollout.Wave && (want.id.IsZero() || w.gone):
			w.fatalf("a wave gets %s while what runs is to stay", p.Snapshot)
		case p.Purpose == rollout.Wave && p.Snapshot != want.id && !finishing:
			w.fatalf("a wave gets %s, want %s", p.Snapshot, want.id)
		case p.Purpose != rollout.Wave && p.Snapshot != next.Good:
			w.fatalf("%s gets %s (%s), and %s is good", p.Instance, p.Snapshot, p.Purpose, next.Good)
		case p.Purpose == rollout.CatchUp && p.Snapshot.Short == w.workers[p.Instance].id.Short:
			w.fatalf("%s gets %s (%s), and runs that content as %s", p.Instance, p.Snapshot, p.Purpose, w.workers[p.Instance].id)
		}
	}
}

// record writes the failures into the channel, as the machine does.
func (w *steps) record() {
	w.t.Helper()
	for _, f := range w.e.state.Rollout.Unrecorded() {
		if w.gone {
			return
		}
		w.tell("%s failed: %s", f.Snapshot, f.Reason)
		if err := w.store.UpdateChannel(w.t.Context(), "reject", w.now, func(c *channel.Channel) error {
			*c = WriteRejection{Failure: f, Fleet: w.e.view.Fleet, At: w.now}.Edit(*c, w.whole[f.Snapshot.Short])
			return nil
		}); err != nil {
			w.fatalf("%v", err)
		}
		if short := f.Snapshot.Short; w.model.rejects(short, w.tried[short], w.now) {
			w.model.rejected[short], w.found[short] = true, true
			w.model.failed[short] = f.Good.Short
		}
	}
}

// end ends a push: applied, refused, or in trouble.
func (w *steps) end(p rollout.Push, err error) {
	i := w.e.instances[p.Instance]
	delete(w.pending, p.Instance)
	var done push.Done
	if err == nil {
		w.run(p)
		done = push.Done{Info: w.says(w.workers[p.Instance]), Reloaded: true}
	}
	OfInstance{instance.PushEnded{About: instance.About{Ref: i.ref()}, Push: p, Done: done, Err: err}}.apply(w.e, w.now)
}

// run makes an instance run what was pushed to it.
func (w *steps) run(p rollout.Push) {
	w.pids++
	w.workers[p.Instance] = worker{p.Snapshot, w.pids, w.now}
}

// settle lets everything succeed until nothing changes. Then all instances must run what should run, or what
// they ran before if that is nothing.
func (w *steps) settle() {
	w.t.Helper()
	w.back()
	for range 300 {
		w.now = w.now.Add(5 * time.Second)
		w.step()
		if w.settled() {
			return
		}
		for _, name := range slices.Sorted(maps.Keys(w.pending)) {
			w.end(w.pending[name], nil)
		}
	}
	w.fatalf("the fleet does not come to rest: want %+v, run %v, pushes %v, rollout %+v, good %s",
		w.seen.wants(w.now), w.workers, w.pending, w.e.state.Rollout.Rollout, w.e.state.Rollout.Good)
}

func (w *steps) settled() bool {
	want := w.seen.wants(w.now)
	if len(w.pending) > 0 {
		return false
	}
	if want.id.IsZero() { // a wave may be under way: it waits, unless a push failed
		r := w.e.state.Rollout.Rollout
		return r == nil || !w.found[r.Target.Short]
	}
	for _, runs := range w.workers {
		if runs.id.Short != want.id.Short {
			return false
		}
	}
	return w.e.state.Rollout.Rollout == nil
}

// back makes the store reachable, and writes the failures into the channel.
func (w *steps) back() {
	w.gone = false
	w.record()
}
