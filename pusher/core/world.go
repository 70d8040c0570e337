package core

import (
	"maps"
	"slices"
	"time"

	"github.com/hapsnap/hapsnap/pusher/binding"
	"github.com/hapsnap/hapsnap/pusher/fleet"
	"github.com/hapsnap/hapsnap/pusher/instance"
	"github.com/hapsnap/hapsnap/pusher/observe"
	"github.com/hapsnap/hapsnap/pusher/report"
	"github.com/hapsnap/hapsnap/pusher/rollout"
	"github.com/hapsnap/hapsnap/snapshots"
	"github.com/hapsnap/hapsnap/snapshots/channel"
)

// The times that nobody had to set so far.
const (
	firstAnswers = 10 * time.Second // how long the first answers are waited for
	heartbeat    = 5 * time.Second  // of the status
	saveInterval = 250 * time.Millisecond
	// Where saving takes a cluster, it is done less often.
	saveIntervalElsewhere = time.Second
	// SaveTimeout is how long saving may take.
	SaveTimeout = 5 * time.Second
)

// world is what is known, and what was decided in this step. All parts of a machine read it.
type world struct {
	Settings
	started time.Time

	// What was heard: of the fleet, of the store, and of who leads.
	policy            rollout.Policy
	instances         map[string]*instanceState
	sorted            []string                  // their names, during a turn in which nobody has joined or left
	draining          map[string]*instanceState // pods that terminate, see membership.go
	fleetName         string                    // in its file
	pods              *fleet.Pods               // which pods are looked for, nil for none
	podsRead          bool                      // they were, once
	view              channel.View
	viewRead, rewound bool // rewound: the store, or its channel, is behind what was seen of it
	term              term
	holder            string // who was last seen to lead, "" where nobody is elected

	// What there is to be pushed.
	live          *binding.Sources
	snapshotCache *binding.Cache
	bindings      *binding.Bindings

	// What was decided, and what the next step of the rollout has to hear of.
	state    State
	decision decision
	proposed *proposal // a step whose state is being saved
	waits    []rollout.Wait
	changes  []report.Change
	results  []rollout.Result
	reloads  map[string]int

	troubles observe.Troubles
	dirty    bool // the state differs from what was saved, in what may be lost

	effects []Effect       // decided, and not begun yet
	facts   []observe.Told // that happened, and were not told yet
}

// term is the time in which this pusher leads. The zero value is that of one that has no others
// beside it.
type term struct {
	number int64
	fenced bool // what is written to instances says who leads
}

// begin has an effect started after the turn.
func (w *world) begin(x Effect) { w.effects = append(w.effects, x) }

// do has something done on an instance after the turn.
func (w *world) do(x instance.Effect) { w.begin(OnInstance{x}) }

// tell has people told of a fact, after the turn.
func (w *world) tell(f observe.Fact, now time.Time) {
	w.facts = append(w.facts, observe.Told{Fact: f, At: now})
}

// trouble notes what keeps the pusher from its work, or that it no longer does.
func (w *world) trouble(about string, err error, now time.Time) {
	if t, changed := w.troubles.Set(about, err, now); changed {
		w.tell(t, now)
		w.dirty = true
	}
}

// lost has people told of changes of map entries that an instance did not make.
func (w *world) lost(n int, now time.Time) {
	if n > 0 {
		w.tell(observe.EntriesLost(n), now)
	}
}

// names returns the instances' names, in order. They are asked for many times in a turn, at whose beginning they
// are sorted.
func (w *world) names() []string {
	if w.sorted != nil {
		return w.sorted
	}
	return slices.Sorted(maps.Keys(w.instances))
}

// instanceOf returns the instance that an event is about. Where that left, or joined anew since,
// it is one that nobody knows: what is written to it is gone.
func (w *world) instanceOf(r instance.Ref) *instanceState {
	for _, of := range []map[string]*instanceState{w.instances, w.draining} {
		if i := of[r.Name]; i != nil && i.ref() == r {
			return i
		}
	}
	i := &instanceState{joined: r.Joined}
	i.Name, i.UID = r.Name, r.UID
	return i
}

// known reports whether it is known who belongs to the fleet. Without one pod there
// is nobody to decide for: a rollout would find nothing in its way.
func (w *world) known() bool {
	return w.pods == nil || (w.podsRead && len(w.instances) > 0)
}

// traceparent returns the trace that a snapshot was published in, "" if there is
// none, or the snapshot is not at hand.
func (w *world) traceparent(id snapshots.ID) string {
	s, _ := w.snapshotCache.Get(id)
	return s.Manifest.Provenance.Traceparent
}

// target returns what the fleet should run in the end.
func (w *world) target() snapshots.ID {
	return observe.View{Decision: w.decision.Decision, Rollout: w.state.Rollout}.Target()
}

// unknown reports whether a snapshot is at hand, but not all that it needs of the
// cluster.
func (w *world) unknown(id snapshots.ID) bool { return w.bindings.Unknown(id) }

// rollouts returns the state of the rollout, and the one that is being saved.
func (w *world) rollouts() []rollout.State {
	if p := w.proposed; p != nil {
		return []rollout.State{w.state.Rollout, p.next}
	}
	return []rollout.State{w.state.Rollout}
}

// change changes the state of the rollout outside of a step, also the one that is being saved.
func (w *world) change(how func(rollout.State) rollout.State) {
	w.state.Rollout = how(w.state.Rollout)
	if p := w.proposed; p != nil {
		p.next = how(p.next)
	}
}

// inUse returns the snapshots that have to be at hand: the wanted one, the good
// one, that of the rollout, and whatever runs and is in the store.
func (w *world) inUse() map[snapshots.ID]bool {
	needed := map[snapshots.ID]bool{w.decision.ID: true}
	for _, s := range w.rollouts() {
		needed[s.Good] = true
		if s.Rollout != nil {
			needed[s.Rollout.Target] = true
		}
	}
	for i := range w.served() {
		if id := i.snapshot(); slices.Contains(w.view.IDs, id) {
			needed[id] = true
		}
	}
	delete(needed, snapshots.ID{})
	return needed
}

// usedOn returns the snapshots in use, as far as an instance is concerned, in order: what
// the fleet should run, and returns to, and what it may have itself.
func (w *world) usedOn(may []snapshots.ID) []snapshots.ID {
	used := append([]snapshots.ID{w.decision.ID, w.state.Rollout.Good}, may...)
	if r := w.state.Rollout.Rollout; r != nil {
		used = append(used, r.Target)
	}
	used = slices.DeleteFunc(used, snapshots.ID.IsZero)
	slices.SortFunc(used, snapshots.ID.Compare)
	return slices.Compact(used)
}

// runs returns the newest snapshot that the fleet was brought to, or is being.
func runs(s rollout.State) snapshots.ID {
	if s.Rollout != nil && s.Rollout.Target.Compare(s.Good) > 0 {
		return s.Rollout.Target
	}
	return s.Good
}
