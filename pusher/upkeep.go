package pusher

import (
	"context"
	"errors"
	"maps"
	"slices"
	"time"

	"github.com/hapsnap/hapsnap/snapshots"
)

// readSnapshots sees to it that the snapshots in use are at hand.
func (e *engine) readSnapshots(ctx context.Context, now time.Time) {
	needed := e.inUse()
	for _, id := range e.library.due(slices.SortedFunc(maps.Keys(needed), snapshots.ID.Compare), now) {
		e.start(func() {
			s, err := fetch(ctx, e.Store, e.library.dir, id)
			e.send(ctx, func(now time.Time) { e.library.take(id, s, err, now) })
		})
	}
	dropped := e.library.keep(needed)
	if len(dropped) > 0 {
		forget(e.library.dir, needed)
	}
	e.troubleWithSnapshots(now)
	if e.bindings.use(e.library.have) {
		e.bindings.gatherVersions(now)
		if len(dropped) > 0 && e.state.Rollout.Rollout == nil {
			e.bindings.prune()
		}
		e.bindings.stale = true
		e.want()
	}
}

// inUse returns the snapshots that have to be at hand: the wanted one, the good
// one, that of the rollout, and whatever runs and is in the store.
func (e *engine) inUse() map[snapshots.ID]bool {
	needed := map[snapshots.ID]bool{e.decision.ID: true, e.state.Rollout.Good: true}
	if r := e.state.Rollout.Rollout; r != nil {
		needed[r.Target] = true
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
