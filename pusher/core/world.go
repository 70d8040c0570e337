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

// Times without an option.
const (
	firstAnswers = 10 * time.Second // how long the machine waits for the first answers of instances
	heartbeat    = 5 * time.Second  // how often the state, with the status, is saved without a change
	saveInterval = 250 * time.Millisecond
	// A state in a cluster is saved less often, since each save writes the whole Secret. It has to
	// be saved often enough nevertheless: a pusher learns from a save that another one has taken
	// its state, and the status counts as old after report.FreshState.
	heartbeatElsewhere    = 10 * time.Second
	saveIntervalElsewhere = time.Second
	// SaveTimeout is how long a save may take.
	SaveTimeout = 5 * time.Second
)

// world is what is known, and what was decided in this step. All parts of a machine read it and
// write into it.
type world struct {
	Settings
	started time.Time

	// The fleet, the store and the leader, according to events.
	policy            rollout.Policy
	instances         map[string]*instanceState
	sorted            []string                  // the names of the instances, during a turn in which none has joined or left
	draining          map[string]*instanceState // pods that terminate, see membership.go
	fleetName         string                    // in its file
	pods              *fleet.Pods               // which pods to look for, nil for none
	podsRead          bool                      // pods were read at least once
	view              channel.View
	viewRead, rewound bool // rewound: the store, or its channel, is behind what the pusher has already seen
	term              term
	holder            string // the last known leader, "" without an election

	// What can be pushed.
	live          *binding.Sources
	snapshotCache *binding.Cache
	bindings      *binding.Bindings

	// What was decided, and the input of the next step of the rollout.
	state    State
	decision decision
	proposed *proposal // a step of the rollout whose state is being saved
	waits    []rollout.Wait
	changes  []report.Change
	results  []rollout.Result
	reloads  map[string]int

	troubles observe.Troubles
	dirty    bool // the state has changes that should be saved soon

	effects []Effect            // decided in this step, to be started by the runner
	facts   []observe.TimedFact // to be handed to the runner
}

// term is the time in which this pusher leads. The zero value is for a pusher that runs alone.
type term struct {
	number int64
	fenced bool // the files on instances name the leader and its term
}

// begin adds an effect. The runner starts it after the turn.
func (w *world) begin(x Effect) { w.effects = append(w.effects, x) }

// do is begin for an effect on an instance.
func (w *world) do(x instance.Effect) { w.begin(OnInstance{x}) }

// record adds a fact. Package observe reports it to people after the turn.
func (w *world) record(f observe.Fact, now time.Time) {
	w.facts = append(w.facts, observe.TimedFact{Fact: f, At: now})
}

// trouble notes an error that keeps the pusher from a part of its work. A nil error means that it
// is over.
func (w *world) trouble(about string, err error, now time.Time) {
	if t, changed := w.troubles.Set(about, err, now); changed {
		w.record(t, now)
		w.dirty = true
	}
}

// lost reports changes of map entries that an instance confirmed but did not make.
func (w *world) lost(n int, now time.Time) {
	if n > 0 {
		w.record(observe.EntriesLost(n), now)
	}
}

// names returns the sorted names of the instances. A turn needs them many times, so they are sorted
// once, at its beginning.
func (w *world) names() []string {
	if w.sorted != nil {
		return w.sorted
	}
	return slices.Sorted(maps.Keys(w.instances))
}

// instanceOf returns the instance that an event is about. If that instance has left or joined again
// meanwhile, it returns a new value that nothing else refers to, and writing to it has no effect.
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

// fleetKnown reports whether the pusher knows the instances of the fleet. A fleet of pods without a
// single pod counts as not known, since a rollout to it would succeed at once.
func (w *world) fleetKnown() bool {
	return w.pods == nil || (w.podsRead && len(w.instances) > 0)
}

// traceparent returns the trace in which a snapshot was published. It returns "" if there is no
// trace, or if the snapshot is not in the cache.
func (w *world) traceparent(id snapshots.ID) string {
	s, _ := w.snapshotCache.Get(id)
	return s.Manifest.Provenance.Traceparent
}

// target returns the snapshot that the fleet should run in the end.
func (w *world) target() snapshots.ID {
	return observe.View{Decision: w.decision.Decision, Rollout: w.state.Rollout}.Target()
}

// rollouts returns the state of the rollout. If a step is being saved, it returns its state as
// well.
func (w *world) rollouts() []rollout.State {
	if p := w.proposed; p != nil {
		return []rollout.State{w.state.Rollout, p.next}
	}
	return []rollout.State{w.state.Rollout}
}

// change changes the state of the rollout outside of a step. If a step is being saved, it changes
// that state too.
func (w *world) change(how func(rollout.State) rollout.State) {
	w.state.Rollout = how(w.state.Rollout)
	if p := w.proposed; p != nil {
		p.next = how(p.next)
	}
}

// inUse returns the snapshots that the cache has to hold: the wanted one, the good one, the target
// of the rollout, and those that instances run if they are in the store.
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

// usedOn returns the snapshots in use on one instance, sorted: the one that the fleet should run,
// the one that it would return to, and those that the instance may have.
func (w *world) usedOn(may []snapshots.ID) []snapshots.ID {
	used := append([]snapshots.ID{w.decision.ID, w.state.Rollout.Good}, may...)
	if r := w.state.Rollout.Rollout; r != nil {
		used = append(used, r.Target)
	}
	used = slices.DeleteFunc(used, snapshots.ID.IsZero)
	slices.SortFunc(used, snapshots.ID.Compare)
	return slices.Compact(used)
}

// runs returns the newest snapshot that the fleet runs or is being brought to.
func runs(s rollout.State) snapshots.ID {
	if s.Rollout != nil && s.Rollout.Target.Compare(s.Good) > 0 {
		return s.Rollout.Target
	}
	return s.Good
}
