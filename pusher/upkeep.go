package pusher

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/hapsnap/hapsnap/pusher/rollout"
	"github.com/hapsnap/hapsnap/snapshots"
	"github.com/hapsnap/hapsnap/snapshots/channel"
)

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
