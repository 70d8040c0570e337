package core

import (
	"bytes"
	"encoding/json"
	"fmt"
	"reflect"
	"slices"
	"time"

	"github.com/hapsnap/hapsnap/internal/printable"
	"github.com/hapsnap/hapsnap/pusher/rollout"
	"github.com/hapsnap/hapsnap/snapshots"
	"github.com/hapsnap/hapsnap/snapshots/channel"
)

// rolling takes the steps of the rollout.
type rolling struct {
	*world
	saving   *saving
	uploads  *uploads
	backends backendsCompared
	outlines outlineMemo
}

// takeStep takes the next step of the rollout. If the step changes the state, it proposes the step.
func (r *rolling) takeStep(now time.Time) {
	if r.proposed != nil {
		return
	}
	next, pushes, waits := r.policy.Step(r.state.Rollout, r.rolloutInput(now), now)
	waits = r.waitForNeeds(waits)
	switch {
	case sameJSON(next, r.state.Rollout), len(pushes) == 0 && onlyClocks(next, r.state.Rollout):
		// A step changes only times if a wave has no member that can be pushed to, or if a soak
		// waits for an instance. Such steps follow each other all the time. They are not proposed,
		// since each proposal saves the state. The next save includes them.
		r.state.Rollout, r.waits = next, waits
		r.results, r.reloads = nil, map[string]int{}
	case r.saving.mayPropose(now):
		r.uploads.noteUploads(pushes)
		r.saving.propose(next, pushes, waits, now)
	}
}

// rolloutInput describes the fleet and the orders for the next step of the rollout.
func (r *rolling) rolloutInput(now time.Time) rollout.Observation {
	_, storeGone := r.troubles["store"]
	want, atHand := r.snapshotCache.Get(r.decision.ID)
	atHand = atHand && len(r.lacks()) == 0 && r.bindings.Complete(r.decision.ID) && !r.bindings.AwaitsCluster(r.decision.ID) && r.knowRunning()
	o := rollout.Observation{
		Intent: r.decision.Intent, MayWait: r.decision.Because == channel.BecauseNewest, Hold: r.decision.Hold || storeGone || !atHand,
		Wishes:  wishes(r.view.Channel, now),
		Channel: r.viewRead && !storeGone, Rejected: rejected(r.view),
		Promotion: order(r.view.Channel.Spec.Promote), Abort: order(r.view.Channel.Spec.Abort),
		Results: r.results, Reloads: r.reloads,
	}
	if atHand {
		o.Want = want.ID()
	}
	o.Backends, o.Compared = r.compared()
	o.Moved = r.bindings.Moved()
	for _, name := range r.names() {
		i := r.instances[name]
		seen := i.seen(r.workFor(i, time.Time{}) == workReload)
		seen.Busy = seen.Busy || r.collectsFirst(i, now)
		seen.WithoutReload = r.runtimeUpdates(i)
		seen.Busy = seen.Busy || r.unclaimed(i)
		seen.Reachable = seen.Reachable && !i.ledByOther()
		p, _ := r.bindings.Of(i.snapshot())
		seen.HardStopAfter = p.HardStopAfter
		o.Instances = append(o.Instances, seen)
	}
	return o
}

// compared returns how the backends of the last good snapshot differ from those of the snapshot
// that is being rolled out, or will be. It returns nil if one of the two was not read.
func (r *rolling) compared() (map[string]rollout.Backend, snapshots.ID) {
	good, target := r.state.Rollout.Good, r.decision.ID
	if r := r.state.Rollout.Rollout; r != nil {
		target = r.Target
	}
	if good.IsZero() || target.IsZero() || good.Short == target.Short {
		return nil, snapshots.ID{}
	}
	if c := r.backends; c.good == good && c.target == target {
		return c.backends, target
	}
	a, known := r.bindings.Of(good)
	b, also := r.bindings.Of(target)
	if !known || !also {
		return nil, snapshots.ID{}
	}
	r.backends = backendsCompared{good, target, r.outlines.compareBackends(a.Snapshot, b.Snapshot)}
	return r.backends.backends, target
}

// waitForNeeds adds a wait for what the wanted snapshot lacks.
func (r *rolling) waitForNeeds(waits []rollout.Wait) []rollout.Wait {
	if lacks := r.lacks(); len(lacks) > 0 && !r.decision.Hold {
		waits = append(slices.Clone(waits), rollout.Wait{
			For: fmt.Sprintf("what %s needs, since the pusher %s", r.decision.ID, printable.Few(lacks, mostLacks)),
		})
	}
	return waits
}

// runtimeUpdates returns the snapshots to which the instance can change without a reload.
func (r *rolling) runtimeUpdates(i *instanceState) []snapshots.ID {
	var out []snapshots.ID
	from := i.snapshot()
	if i.foreign() != "" {
		return nil // the worker does not run the snapshot that it names
	}
	for _, id := range i.matters {
		if id.Short != from.Short && id.Short != i.needsReload && r.bindings.RuntimeUpdate(i.info.Node, from, id, i.Layout) {
			out = append(out, id)
		}
	}
	return out
}

// knowRunning reports whether the pusher has read the snapshots that the instances run, as far as
// the store has them. Without them it does not know whether another snapshot needs a reload.
func (r *rolling) knowRunning() bool {
	for _, i := range r.instances {
		id := i.snapshot()
		_, has := r.snapshotCache.Get(id)
		if i.reachable() && !has && !r.snapshotCache.Unreadable(id) && slices.Contains(r.view.IDs, id) {
			return false
		}
	}
	return true
}

// onlyClocks reports whether a step only changed times: when a wave, a soak or a count began, or
// when an instance was touched or lost.
func onlyClocks(next, current rollout.State) bool {
	if next.Rollout == nil || current.Rollout == nil || len(next.Rollout.Touched) != len(current.Rollout.Touched) {
		return false
	}
	moved, was := *next.Rollout, current.Rollout
	back := func(clock *time.Time, to time.Time) {
		if !clock.IsZero() && !to.IsZero() {
			*clock = to
		}
	}
	back(&moved.Since, was.Since)
	back(&moved.From, was.From)
	moved.Touched = slices.Clone(moved.Touched)
	for i := range moved.Touched {
		back(&moved.Touched[i].At, was.Touched[i].At)
		back(&moved.Touched[i].Lost, was.Touched[i].Lost)
	}
	next.Rollout = &moved
	return sameJSON(next, current)
}

// sameJSON reports whether two values have the same JSON. It is fast if the values are equal, and
// they nearly always are.
func sameJSON(a, b any) bool {
	if reflect.DeepEqual(a, b) {
		return true
	}
	x, errX := json.Marshal(a)
	y, errY := json.Marshal(b)
	return errX == nil && errY == nil && bytes.Equal(x, y)
}

// backendsCompared caches how the backends of two snapshots differ.
type backendsCompared struct {
	good, target snapshots.ID
	backends     map[string]rollout.Backend
}
