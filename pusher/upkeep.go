package pusher

import (
	"errors"
	"maps"
	"slices"
	"time"

	"github.com/hapsnap/hapsnap/snapshots"
)

// readSnapshots sees to it that the snapshots in use are at hand.
func (e *engine) readSnapshots(now time.Time) {
	needed := e.inUse()
	for _, id := range e.library.due(slices.SortedFunc(maps.Keys(needed), snapshots.ID.Compare), now) {
		e.begin(readSnapshot{e.Store, e.library.dir, id})
	}
	for _, s := range e.library.keepAgain(now) {
		e.begin(keepSnapshot{e.library.dir, s})
	}
	e.trouble("cache", e.library.trouble(), now)
	dropped := e.library.keep(needed)
	if len(dropped) > 0 {
		forget(e.library.dir, needed)
	}
	e.pruning = e.pruning || len(dropped) > 0
	e.troubleWithSnapshots(now)
	if e.bindings.use(e.library.have) {
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
		_, unreadable := e.library.failed[id]
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
	for _, id := range slices.SortedFunc(maps.Keys(e.library.failed), snapshots.ID.Compare) {
		errs = append(errs, e.library.failed[id].err)
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
		e.spread.assigned()
	}
}
