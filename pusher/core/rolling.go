package core

import (
	"bytes"
	"encoding/json"
	"fmt"
	"reflect"
	"slices"
	"time"

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
}

// takeStep takes the next step of the rollout. One that changes its state is proposed.
func (r *rolling) takeStep(now time.Time) {
	if r.proposed != nil {
		return
	}
	next, pushes, waits := r.policy.Step(r.state.Rollout, r.rolloutInput(now), now)
	waits = r.waitForNeeds(waits)
	switch {
	case sameJSON(next, r.state.Rollout), len(pushes) == 0 && onlyClocks(next, r.state.Rollout):
		// A wave without members that can be pushed to, or a soak that waits for an instance, begins anew in every
		// step. The state would be saved without a pause, as long as that takes; the next report saves it.
		r.state.Rollout, r.waits = next, waits
		r.results, r.reloads = nil, map[string]int{}
	case r.saving.mayPropose(now):
		r.uploads.noteUploads(pushes)
		r.saving.propose(next, pushes, waits, now)
	}
}

// rolloutInput returns what the rollout is to know.
func (r *rolling) rolloutInput(now time.Time) rollout.Observation {
	_, storeGone := r.troubles["store"]
	want, atHand := r.snapshotCache.Get(r.decision.ID)
	atHand = atHand && len(r.lacks()) == 0 && r.bindings.Complete(r.decision.ID) && !r.unknown(r.decision.ID) && r.knowRunning()
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

// compared returns the backends of the last good snapshot, compared with what is rolled
// out, or is to be; nil if they are not at hand.
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
	r.backends = backendsCompared{good, target, compareBackends(a.Snapshot, b.Snapshot)}
	return r.backends.backends, target
}

// waitForNeeds returns the waits with the one for what the wanted snapshot lacks.
func (r *rolling) waitForNeeds(waits []rollout.Wait) []rollout.Wait {
	if lacks := r.lacks(); len(lacks) > 0 && !r.decision.Hold {
		waits = append(slices.Clone(waits), rollout.Wait{
			For: fmt.Sprintf("what %s needs, since the pusher %s", r.decision.ID, some(lacks)),
		})
	}
	return waits
}

// runtimeUpdates returns the snapshots that an instance can be brought to without a reload.
func (r *rolling) runtimeUpdates(i *instanceState) []snapshots.ID {
	var out []snapshots.ID
	from := i.snapshot()
	if i.foreign() != "" {
		return nil // it has something else than what is changed
	}
	for _, id := range i.matters {
		if id.Short != from.Short && id.Short != i.needsReload && r.bindings.RuntimeUpdate(i.info.Node, from, id, i.Layout) {
			out = append(out, id)
		}
	}
	return out
}

// knowRunning reports whether the snapshots are at hand that the instances run, as far
// as the store has them. What it takes to bring them to another cannot be told before.
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

// onlyClocks reports whether a step did no more than to move the beginning of what waits: of a wave, a soak, a count, or
// the time at which an instance was seen or lost.
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

// sameJSON reports whether two values are stored alike. Values that are the same, as they
// nearly always are, cost little.
func sameJSON(a, b any) bool {
	if reflect.DeepEqual(a, b) {
		return true
	}
	x, errX := json.Marshal(a)
	y, errY := json.Marshal(b)
	return errX == nil && errY == nil && bytes.Equal(x, y)
}

// comparison remembers how the backends of two snapshots compare.
type backendsCompared struct {
	good, target snapshots.ID
	backends     map[string]rollout.Backend
}
