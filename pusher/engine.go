package pusher

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/hapsnap/hapsnap/pusher/binding"
	"github.com/hapsnap/hapsnap/pusher/observe"
	"github.com/hapsnap/hapsnap/pusher/rollout"
	"github.com/hapsnap/hapsnap/snapshots"
	"github.com/hapsnap/hapsnap/snapshots/channel"
)

// The times that nobody had to set so far.
const (
	viewTimeout  = 30 * time.Second // of the store
	firstAnswers = 10 * time.Second // how long the first answers are waited for
	heartbeat    = 5 * time.Second  // of the status
	saveInterval = 250 * time.Millisecond
	// Where saving takes a cluster, it is done less often, and may take so long.
	saveIntervalElsewhere = time.Second
	saveTimeout           = 5 * time.Second
)

// engine is everything that is known, held by one goroutine.
type engine struct {
	Options
	started time.Time
	inbox   inbox
	effects []Effect // decided in this turn, and not started yet

	policy    rollout.Policy
	instances map[string]*instanceState
	membership

	view      channel.View
	viewRead  bool
	rewound   bool // the store, or its channel, is behind what was seen of it
	live      *binding.Sources
	emptiness emptiness // of backends
	lacking   int       // how many things snapshots in use need and cannot have
	soonest   soonest   // certificates to expire

	backends backendsCompared

	snapshotCache *binding.Cache
	bindings      *binding.Bindings
	eventLog      *eventLog // nil: there is none
	state         state
	decision      decision
	waits         []rollout.Wait
	changes       []observe.Change

	// What the next step has to hear of.
	results []rollout.Result
	reloads map[string]int

	troubles  observe.Troubles
	rejecting bool
	rejectAt  time.Time // not before

	// What people are told: what has happened since they were last, and what was known at the
	// end of the turn.
	facts    []observe.Told
	shown    observe.View
	reported observe.Status // of that
	services *services      // of the runner

	// missedSecrets is what the snapshots that run take in vain from Secrets.
	missedSecrets []binding.SecretFault
	dirty         bool // the state differs from what was saved, in what may be lost
	saves         saves
	reviewed      time.Time // the uploads
	pruning       bool      // slots are to be dropped that no snapshot in use has
	// forgetting is set while snapshots that are not needed are removed from this machine's disk:
	// those that are in it stay, and others are not read meanwhile.
	forgetting map[snapshots.ID]bool
	toForget   bool // some are to be removed
	leadership leadership
}

func newEngine(o Options, s state, fallback []byte, now time.Time) *engine {
	e := &engine{
		Options: o, started: now, state: s,
		inbox: newInbox(), instances: map[string]*instanceState{},
		snapshotCache: binding.NewCache(o.cache()), bindings: binding.New(s.Slots, o.endpointsFrom(), o.refusals()),
		policy: rollout.DefaultPolicy(), troubles: observe.Troubles{}, reloads: map[string]int{},
		services: o.services(),
	}
	if o.eventsTo != nil {
		e.eventLog = newEventLog(o.eventsTo, s, o.Log, now)
	}
	e.live = binding.NewSources(e.bindings, o.refusals(), s.Kept, fallback, now)
	e.state.Rollout, e.changes = s.Rollout.Resume(s.Status.Updated, now), s.Status.Changes
	e.emptiness = newEmptiness(s.Status.Backends)
	return e
}

// turn is the whole of the pusher: it observes, decides what should run, takes
// the next step of the rollout, and collects the effects that the runner is to start: its
// pushes once the state of the step was saved, see saves.go.
func (e *engine) turn(now time.Time) {
	e.view.Runs = runs(e.state.Rollout)
	e.refuseOwn(now)
	e.decision = decide(e.view, e.state.Rollout.Failed, now)
	e.tellInstances()
	e.readSnapshots(now)
	e.openSnapshots(now)
	e.assignSlots(now)
	e.bindings.Expire(now)
	e.beginClaims(now)
	ready := e.ready(now)
	e.beginApproved(ready, now)
	if ready {
		e.takeStep(now)
		e.reviewUploads(now)
		e.beginWork(now)
		e.beginSampling(now)
		e.reject(now)
		e.troubleWithSecrets(now)
	}
	e.live.SettleSecrets(now)
	e.troubleWithLive(now)
	e.troubleWithNeeds(now)
	e.troubleWithSignatures(now)
	e.look(now)
	e.keepState(now)
}

// tellInstances tells each instance which snapshots matter.
func (e *engine) tellInstances() {
	matters := []snapshots.ID{e.decision.ID}
	if r := e.state.Rollout.Rollout; r != nil {
		matters = append(matters, r.Target)
	}
	matters = append(matters, e.state.Rollout.Good)
	matters = slices.DeleteFunc(matters, snapshots.ID.IsZero)
	for _, i := range e.instances {
		i.matters = matters
	}
}

// unknown reports whether a snapshot is at hand, but not all that it needs of the
// cluster.
func (e *engine) unknown(id snapshots.ID) bool { return e.bindings.Unknown(id) }

// ready reports whether enough is known to decide: the store, the live objects
// and every instance were read or asked at least once. Before, what is missing
// would be taken for what is not there.
func (e *engine) ready(now time.Time) bool {
	if !e.leadsFleet(now) || !e.live.Ready() || !e.known() || e.unknown(e.state.Rollout.Good) || e.state.Rollout.Rollout != nil && e.unknown(e.state.Rollout.Rollout.Target) {
		return false
	}
	if e.blindStart(now) {
		return false
	}
	if now.Sub(e.started) > firstAnswers {
		return true
	}
	for _, i := range e.instances {
		if !i.asked || e.unclaimed(i) {
			return false
		}
	}
	return true
}

// observe returns what the rollout is to know.
func (e *engine) observe(now time.Time) rollout.Observation {
	_, storeGone := e.troubles["store"]
	want, atHand := e.snapshotCache.Get(e.decision.ID)
	atHand = atHand && len(e.lacks()) == 0 && e.bindings.Complete(e.decision.ID) && !e.unknown(e.decision.ID) && e.knowRunning()
	o := rollout.Observation{
		Intent: e.decision.Intent, MayWait: e.decision.Because == channel.BecauseNewest, Hold: e.decision.Hold || storeGone || !atHand,
		Wishes:  wishes(e.view.Channel, now),
		Channel: e.viewRead && !storeGone, Rejected: rejected(e.view),
		Promotion: order(e.view.Channel.Spec.Promote), Abort: order(e.view.Channel.Spec.Abort),
		Results: e.results, Reloads: e.reloads,
	}
	if atHand {
		o.Want = want.ID()
	}
	o.Backends, o.Compared = e.compared()
	o.Moved = e.bindings.Moved()
	for _, name := range e.names() {
		i := e.instances[name]
		seen := i.seen(e.stands(i, time.Time{}) == workReload)
		seen.Busy = seen.Busy || e.collectsFirst(i, now)
		seen.WithoutReload = e.runtimeUpdates(i)
		seen.Busy = seen.Busy || e.unclaimed(i)
		seen.Reachable = seen.Reachable && !i.ledByOther()
		p, _ := e.bindings.Of(i.snapshot())
		seen.HardStopAfter = p.HardStopAfter
		o.Instances = append(o.Instances, seen)
	}
	return o
}

// names returns the instances' names, in order.
func (e *engine) names() []string { return slices.Sorted(maps.Keys(e.instances)) }

// traceparent returns the trace that a snapshot was published in, "" if there is
// none, or the snapshot is not at hand.
func (e *engine) traceparent(id snapshots.ID) string {
	s, _ := e.snapshotCache.Get(id)
	return s.Manifest.Provenance.Traceparent
}

// readSnapshots sees to it that the snapshots in use are at hand.
func (e *engine) readSnapshots(now time.Time) {
	needed := e.inUse()
	may := slices.DeleteFunc(slices.SortedFunc(maps.Keys(needed), snapshots.ID.Compare), func(id snapshots.ID) bool {
		return e.forgetting != nil && !e.forgetting[id] // what is read now might be removed at once
	})
	for _, id := range e.snapshotCache.Due(may, now) {
		e.begin(ReadSnapshot{id})
	}
	for _, s := range e.snapshotCache.KeepAgain(now) {
		e.begin(KeepSnapshot{s})
	}
	e.trouble("cache", e.snapshotCache.Trouble(), now)
	dropped := e.snapshotCache.Keep(needed)
	if e.toForget = e.toForget || len(dropped) > 0; e.toForget && e.forgetting == nil && e.cache() != "" {
		e.toForget, e.forgetting = false, maps.Clone(needed)
		for _, id := range e.snapshotCache.Reading() {
			e.forgetting[id] = true
		}
		e.begin(ForgetSnapshots{e.forgetting})
	}
	e.pruning = e.pruning || len(dropped) > 0
	e.troubleWithSnapshots(now)
	if n, changed := e.live.Use(e.snapshotCache.All(), now); changed {
		e.takeNews(n, now)
		e.followCluster()
	}
	e.pruneSlots(needed)
}

// pruneSlots drops the slots of backends that no snapshot in use has, also between waves:
// an undo goes to one in use. It waits for those that are not at hand yet, and not for what
// only some instance runs and nobody can read.
func (e *engine) pruneSlots(needed map[snapshots.ID]bool) {
	if !e.pruning {
		return
	}
	matters := e.usedOn(nil)
	for id := range needed {
		_, prepared := e.bindings.Of(id)
		if !prepared && (!e.snapshotCache.Unreadable(id) || slices.Contains(matters, id)) {
			return
		}
	}
	e.pruning = false
	e.bindings.Prune()
}

// inUse returns the snapshots that have to be at hand: the wanted one, the good
// one, that of the rollout, and whatever runs and is in the store.
func (e *engine) inUse() map[snapshots.ID]bool {
	needed := map[snapshots.ID]bool{e.decision.ID: true}
	for _, s := range e.rollouts() {
		needed[s.Good] = true
		if s.Rollout != nil {
			needed[s.Rollout.Target] = true
		}
	}
	for _, i := range e.instances {
		if id := i.snapshot(); slices.Contains(e.view.IDs, id) {
			needed[id] = true
		}
	}
	delete(needed, snapshots.ID{})
	return needed
}

func (e *engine) troubleWithSnapshots(now time.Time) {
	errs := e.snapshotCache.Failures()
	for _, p := range e.bindings.All() {
		if p.Err != nil {
			errs = append(errs, p.Err)
		}
	}
	e.trouble("snapshots", errors.Join(errs...), now)
}

// assignSlots brings the slot table in line with the endpoints, when that is due.
func (e *engine) assignSlots(now time.Time) {
	if e.live.Ready() && e.bindings.Assign(now, e.DrainTime) {
		e.dirty = true
		e.tell(observe.ServersChanged{}, now)
	}
}

// runs returns the newest snapshot that the fleet was brought to, or is being.
func runs(s rollout.State) snapshots.ID {
	if s.Rollout != nil && s.Rollout.Target.Compare(s.Good) > 0 {
		return s.Rollout.Target
	}
	return s.Good
}

// troubleWithSignatures tells of snapshots that are newer than all that are accepted, and
// not signed by who may: somebody put them there, or a key was forgotten. Older ones are
// from before signatures were asked for.
func (e *engine) troubleWithSignatures(now time.Time) {
	newer := refusedAbove(e.view)
	if len(newer) == 0 {
		e.trouble(observe.AboutSigned, nil, now)
		return
	}
	more := ""
	if n := len(newer) - 1; n > 0 {
		more = fmt.Sprintf("; and %d more", n)
	}
	newest := newer[len(newer)-1]
	e.trouble(observe.AboutSigned, fmt.Errorf("%s is not run: %s%s", newest.ID, newest.Reason, more), now)
}

// refusedAbove returns the refused snapshots that are newer than the newest.
func refusedAbove(v channel.View) []channel.Refused {
	var out []channel.Refused
	for _, r := range v.Refused {
		if r.ID.Revision >= v.Head().Revision {
			out = append(out, r)
		}
	}
	return out
}
