package core

import (
	"bytes"
	"encoding/json"
	"fmt"
	"reflect"
	"slices"
	"time"

	"github.com/hapsnap/hapsnap/pusher/instance"
	"github.com/hapsnap/hapsnap/pusher/observe"
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

// sampling asks instances for statistics.
type sampling struct {
	*world
	backends []string // of the last sample, kept once for all instances that have the same
}

// The pace at which instances are asked for statistics, which are long with many
// backends: a few times in a soak time, and seldom while nothing is rolled out.
const (
	samplesPerSoak = 5
	slowestSample  = 10 * time.Second
	idleSample     = time.Minute
)

// samplePace returns how often to ask for statistics; never is 0.
func samplePace(p rollout.Policy, poll time.Duration, busy bool) time.Duration {
	switch {
	case p.Gate.Off || p.Soak <= 0:
		return 0
	case busy:
		return max(poll, min(p.Soak/samplesPerSoak, slowestSample))
	}
	return max(poll, min(2*p.Soak, idleSample))
}

// beginSampling asks the instances for statistics whose turn it is.
func (s *sampling) beginSampling(now time.Time) {
	pace := samplePace(s.policy, s.PollInterval, s.state.Rollout.Rollout != nil)
	if pace == 0 {
		return
	}
	for _, name := range s.names() {
		i := s.instances[name]
		if i.sampling || !i.reachable() || i.busy == workPush || now.Sub(i.sampled) < pace {
			continue
		}
		i.sampling, i.sampled = true, now
		s.do(instance.Sample{Ref: i.ref(), Ignore: s.policy.Gate.Ignore, At: now})
	}
}

// sampled takes the statistics of an instance.
func (s *sampling) sampled(i *instanceState, ev instance.Sampled, now time.Time) {
	i.sampling = false
	if ev.Err != nil {
		s.tell(observe.Debug("statistics not had", "instance", i.Name, "err", ev.Err), now)
		return
	}
	if slices.Equal(s.backends, ev.Sample.Up.Backends) {
		ev.Sample.Up.Backends = s.backends
	} else {
		s.backends = ev.Sample.Up.Backends
	}
	i.samples = i.samples.add(ev.Sample)
}

// samples are what the workers of an instance counted, oldest first, all of one worker.
type samples []rollout.Sample

// add returns the samples with one more, without those of another worker and those
// that are too old.
func (s samples) add(n rollout.Sample) samples {
	s = slices.DeleteFunc(slices.Clone(s), func(o rollout.Sample) bool {
		return o.PID != n.PID || o.Requests > n.Requests || n.At.Sub(o.At) > instance.Past
	})
	for i := range s {
		s[i].Up = rollout.ServersUp{}
	}
	for i := range s[:max(0, len(s)-1)] {
		s[i].Served = nil // rates are those between the last two, and there may be many backends
	}
	return append(s, n)
}

// traffic is what the backends of a fleet serve.
type traffic struct {
	made time.Time
	by   map[string]observe.Traffic
}

// trafficPace is how often traffic is added up, at most: samples come at the pace of the gate.
const trafficPace = 2 * time.Second

// add adds what a worker counted: until its last sample, and in the time before that since another one.
func (t traffic) add(s samples, now time.Time) {
	if len(s) == 0 {
		return
	}
	last := s[len(s)-1]
	for backend, errors := range last.By {
		sum := t.by[backend]
		sum.Errors += errors
		t.by[backend] = sum
	}
	if len(s) == 1 || now.Sub(last.At) > instance.Past { // it cannot be asked any more
		return
	}
	before := s[len(s)-2]
	span := last.At.Sub(before.At).Seconds()
	if span <= 0 {
		return
	}
	for backend, requests := range last.Served {
		sum := t.by[backend]
		sum.Rate += float64(max(0, requests-before.Served[backend])) / span
		sum.ErrorRate += float64(max(0, last.By[backend]-before.By[backend])) / span
		t.by[backend] = sum
	}
}

// last returns the newest, with the traffic before it: since the oldest, or since the
// worker started, if that was not long ago or nothing else is known.
func (s samples) last(started time.Time) rollout.Sample {
	if len(s) == 0 {
		return rollout.Sample{}
	}
	first, last := s[0], s[len(s)-1]
	last.Age = max(0, last.At.Sub(started))
	last.Past = rollout.Rate{Counters: last.Minus(first.Counters), For: last.At.Sub(first.At)}
	if age := last.At.Sub(started); age > 0 && (age <= instance.Past || len(s) == 1) {
		last.Past = rollout.Rate{Counters: last.Counters, For: age}
	}
	return last
}
