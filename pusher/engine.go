package pusher

import (
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/hapsnap/hapsnap/pusher/rollout"
	"github.com/hapsnap/hapsnap/snapshots"
	"github.com/hapsnap/hapsnap/snapshots/channel"
)

// The times that nobody had to set so far.
const (
	askTimeout   = 5 * time.Second  // of an instance that is asked what it runs
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
	effects []effect // decided in this turn, and not started yet

	policy    rollout.Policy
	instances map[string]*instance
	membership

	view        channel.View
	viewRead    bool
	rewound     bool // the store, or its channel, is behind what was seen of it
	live        liveData
	liveRead    bool
	fallback    []byte
	secrets     secretSet // of a cluster
	refusals    refusals  // likewise
	waiting     waiting   // for what a cluster has
	losses      losses    // of endpoints, and whether they are believed
	emptiness   emptiness // of backends
	lacking     int       // how many things snapshots in use need and cannot have
	propagation propagation
	tally       tally // of endpoints that changed

	backends backendsCompared

	snapshotCache *snapshotCache
	decryptions   *decryptions
	bindings      *bindings
	state         state
	decision      decision
	waits         []rollout.Wait
	changes       []Change

	// What the next step has to hear of.
	results []rollout.Result
	reloads map[string]int

	troubles      map[string]Trouble
	troubleLogged map[string]loggedTrouble
	told          map[string]bool // troubles of which people were notified
	rejecting     bool
	rejectAt      time.Time // not before

	reported Status // last
	dirty    bool   // the state differs from what was saved, in what may be lost
	saves    saves
	reviewed time.Time // the uploads
	pruning  bool      // slots are to be dropped that no snapshot in use has
	metrics  *metrics
	traces   traces
	objects  objects
	// announcer tells others of the condition; nil: nobody is to be told.
	announcer  *announcer
	keeper     Keeper
	leadership leadership
}

func newEngine(o Options, s state, fallback []byte, now time.Time) *engine {
	e := &engine{
		Options: o, started: now, state: s, fallback: fallback,
		inbox: newInbox(), instances: map[string]*instance{},
		snapshotCache: newSnapshotCache(o.cache()), keeper: o.keeper(), decryptions: newDecryptions(), bindings: newBindings(s.Slots, o.endpointsFrom()),
		secrets: secretSet{}, refusals: newRefusals(o),
		policy: rollout.DefaultPolicy(), troubles: map[string]Trouble{}, troubleLogged: map[string]loggedTrouble{}, told: map[string]bool{}, reloads: map[string]int{},
		metrics: newMetrics(o.Metrics), traces: traces{tracer: o.Tracers.Tracer(tracerName)},
	}
	if o.Report != nil {
		e.announcer = newAnnouncer(o.Report, o.Log)
	}
	e.bindings.refusals = newRefusals(o)
	e.state.Rollout, e.changes = s.Rollout.Resume(s.Status.Updated, now), s.Status.Changes
	e.live.Fallback, e.live.Endpoints = fallback, knownEndpoints(s.Slots)
	e.emptiness = newEmptiness(s.Status.Backends)
	e.losses = newLosses(s, e.live.Endpoints)
	e.bindings.setLive(e.live.Live, now)
	e.liveRead = o.Live == "" // a snapshot is bound when the cluster is known as far as it goes
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
	e.bindings.expire(now)
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
	e.troubleWithCluster(now)
	e.troubleWithNeeds(now)
	e.troubleWithSignatures(now)
	e.settleSecrets(now)
	e.report(now)
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
func (e *engine) unknown(id snapshots.ID) bool {
	p, atHand := e.bindings.prepared[id]
	return atHand && !p.known
}

// ready reports whether enough is known to decide: the store, the live objects
// and every instance were read or asked at least once. Before, what is missing
// would be taken for what is not there.
func (e *engine) ready(now time.Time) bool {
	if !e.leadsFleet(now) || !e.liveRead || !e.known() || e.unknown(e.state.Rollout.Good) || e.state.Rollout.Rollout != nil && e.unknown(e.state.Rollout.Rollout.Target) {
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
	want, atHand := e.snapshotCache.have[e.decision.ID]
	atHand = atHand && len(e.lacks()) == 0 && e.bindings.complete(e.decision.ID) && !e.unknown(e.decision.ID) && e.knowRunning()
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
	o.Moved = e.bindings.moved
	for _, name := range e.names() {
		i := e.instances[name]
		seen := i.seen(e.stands(i, time.Time{}) == workReload)
		seen.Busy = seen.Busy || e.collectsFirst(i, now)
		seen.Light = e.light(i)
		seen.Busy = seen.Busy || e.unclaimed(i)
		seen.Reachable = seen.Reachable && !i.ledByOther()
		seen.HardStopAfter = e.bindings.prepared[i.snapshot()].hardStopAfter
		o.Instances = append(o.Instances, seen)
	}
	return o
}

// names returns the instances' names, in order.
func (e *engine) names() []string { return slices.Sorted(maps.Keys(e.instances)) }

// trace has the spans follow the rollout.
func (e *engine) trace() {
	var target snapshots.ID
	if r := e.state.Rollout.Rollout; r != nil {
		target = r.Target
	}
	_, known := e.snapshotCache.have[target]
	e.traces.follow(e.state.Rollout, e.traceparent(target), known)
}

// traceparent returns the trace that a snapshot was published in, "" if there is
// none, or the snapshot is not at hand.
func (e *engine) traceparent(id snapshots.ID) string {
	return e.snapshotCache.have[id].Manifest.Provenance.Traceparent
}

// longestError is how much of an error is kept and told, in bytes: some have a line for each
// Secret, or whatever an instance answered.
const longestError = 4000

// brief returns what an error says, as far as it is kept.
func brief(err error) string {
	if err == nil {
		return ""
	}
	text := err.Error()
	if len(text) > longestError {
		return strings.ToValidUTF8(text[:longestError], "") + "…"
	}
	return text
}

// logger returns a logger for an instance.
func (e *engine) logger(name string) *slog.Logger { return e.Log.With("instance", name) }

// readSnapshots sees to it that the snapshots in use are at hand.
func (e *engine) readSnapshots(now time.Time) {
	needed := e.inUse()
	for _, id := range e.snapshotCache.due(slices.SortedFunc(maps.Keys(needed), snapshots.ID.Compare), now) {
		e.begin(readSnapshot{e.Store, e.snapshotCache.dir, id})
	}
	for _, s := range e.snapshotCache.keepAgain(now) {
		e.begin(keepSnapshot{e.snapshotCache.dir, s})
	}
	e.trouble("cache", e.snapshotCache.trouble(), now)
	dropped := e.snapshotCache.keep(needed)
	if len(dropped) > 0 {
		forget(e.snapshotCache.dir, needed)
	}
	e.pruning = e.pruning || len(dropped) > 0
	e.troubleWithSnapshots(now)
	if e.bindings.use(e.snapshotCache.have) {
		e.bindings.gatherVersions(now)
		e.bindings.stale = true
		if len(e.losses.guard.kept) > 0 {
			e.hearEndpoints(nil, now) // no snapshot may have them any more
		}
		e.want()
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
		_, prepared := e.bindings.prepared[id]
		_, unreadable := e.snapshotCache.failed[id]
		if !prepared && (!unreadable || slices.Contains(matters, id)) {
			return
		}
	}
	e.pruning = false
	e.bindings.prune()
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
	var errs []error
	for _, id := range slices.SortedFunc(maps.Keys(e.snapshotCache.failed), snapshots.ID.Compare) {
		errs = append(errs, e.snapshotCache.failed[id].err)
	}
	for _, id := range slices.SortedFunc(maps.Keys(e.bindings.prepared), snapshots.ID.Compare) {
		if p := e.bindings.prepared[id]; p.err != nil {
			errs = append(errs, p.err)
		}
	}
	e.trouble("snapshots", errors.Join(errs...), now)
}

// assignSlots brings the slot table in line with the endpoints, when that is due.
func (e *engine) assignSlots(now time.Time) {
	if e.liveRead && e.bindings.assign(now, e.DrainTime) {
		e.dirty = true
		e.propagation.assigned()
	}
}

// aboutSigned is what the trouble with snapshots is called that nobody who may has signed.
const aboutSigned = "signatures"

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
		e.trouble(aboutSigned, nil, now)
		return
	}
	more := ""
	if n := len(newer) - 1; n > 0 {
		more = fmt.Sprintf("; and %d more", n)
	}
	newest := newer[len(newer)-1]
	e.trouble(aboutSigned, fmt.Errorf("%s is not run: %s%s", newest.ID, newest.Reason, more), now)
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
