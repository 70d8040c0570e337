// Package rollout decides which instance gets which snapshot, and when.
//
// It is one pure function, [Policy.Step]. From the state, which is stored, and an observation of the store and
// the fleet, it computes the next state and the pushes to begin now. It reads no clock and starts nothing. The
// caller
//
//   - stores the new state before it begins the pushes,
//   - reports the end of each push once, as a [Result], and begins no second push for an instance
//     before that,
//   - calls [State.Resume] after a restart, since no push of the old process is under way any more, and
//   - reports about an instance only what it asked after the instance's last push ended.
//
// In return, a snapshot that is not yet known to be good reaches the fleet in waves, the canary first. A wave
// begins when everything that was pushed before has stayed healthy for the soak time. After a failure only the
// last good snapshot is pushed, to the instances that were touched, the last touched first. An instance that is
// down never blocks the others, and is brought up to date when it returns. A hold keeps everything as it is,
// with two exceptions: an undo continues, and an instance that joins gets its first push. Reloads keep to a
// budget, except those of an undo. In a blackout no wave begins, unless a person ordered it. The [Sample] of
// each instance with the snapshot is compared with the samples before, and with those of the others. If the
// others fail as well, the rollout pauses. Step also returns what it waits for, as [Wait].
//
// # Decisions
//
// Once more than half of the fleet has a snapshot, its rollout is finished before that of a newer one begins.
// Otherwise a newer snapshot that fails on the canary would take the whole fleet back to what ran before both.
// An order of a person, by a pin or an override, does not wait.
//
// An undo waits neither for the budget nor for a blackout, but counts for the budget: to repair what is broken
// is more important. An order of a person, by a pin or an override, does not wait for a blackout. It waits for
// the budget, since that protects the machines.
//
// Old workers are counted by how long they may live, not by what they do, since the Dataplane API asks only the
// newest worker. The hard-stop-after of a worker's configuration says when it is gone at the latest, so the
// count is never too low.
//
// The gate compares twice: with the worker before, and with the others at the same time. If an instance is only
// worse than before, a Service may have failed for all: then the rollout pauses. If it is only worse than the
// others, it may always have been. Once all instances have the snapshot, those that have had it since an
// earlier wave stand in for the others.
//
// Evidence must point at the snapshot. Whatever a tenant or a machine does during a soak happens in some
// rollout. So each finding is compared with what the snapshot changed (pusher/core/compare.go: sections with
// their defaults, global, files and routes), with what was known before, and with the others. Findings that
// this excludes are rarely signs of a bad snapshot. A test rolls snapshots out among tenants that come and
// flap.
//
// After a failure, snapshots below the failed one are not tried. If the fleet is at fault, each older snapshot
// would fail in turn. A rejection names its fleet and the snapshot that the fleet went back to, so that every
// reader of the channel decides the same.
//
// Statistics are summed over frontends. Those of each backend would also find a small Service that a snapshot
// breaks. But they would have to be kept for each instance and backend, and most have too few requests to judge
// by. A backend without a server up is found by its name.
//
// The state holds the counters from which counting began, but not those that were read last. The former are
// written once for each instance and wave; the latter are read again after a restart.
//
// In a blackout, pushes to instances that were touched go on. If the push to one failed, the instance may run
// anything, and should not be left so for a night.
package rollout

import (
	"fmt"
	"slices"
	"time"

	"github.com/hapsnap/hapsnap/snapshots"
)

// patience is how many pushes to an instance may fail in a row before a wave no longer waits for it.
const patience = 3

// Step computes the next state, the pushes to begin, and what the rollout waits for. The caller stores the
// state before it begins the pushes. Step does not change the given state.
func (p Policy) Step(s State, o Observation, now time.Time) (State, []Push, []Wait) {
	t := &step{Policy: p, State: s.clone(), o: o, now: now, seen: make(map[string]Seen, len(o.Instances))}
	for _, i := range o.Instances {
		t.seen[i.Name] = i
	}
	t.forgetGone()
	t.forgetReloads()
	t.forgive()
	t.takeResults()
	t.followChannel()
	t.holdWithoutWish()
	t.adoptGood()
	t.heed()
	t.choose()
	t.recognize()
	t.advance()
	t.forget()
	t.catchUp()
	return t.State, t.pushes, t.waits
}

// step is the state of one call of Step.
type step struct {
	Policy
	State
	o      Observation
	now    time.Time
	seen   map[string]Seen
	pushes []Push
	waits  []Wait
}

// forgetGone drops what is remembered of instances that left the fleet. It keeps an instance with a push under
// way.
func (t *step) forgetGone() {
	for name, i := range t.Instances {
		if _, ok := t.seen[name]; !ok && i.Push == nil {
			delete(t.Instances, name)
		}
	}
	for name := range t.Repairs {
		if _, ok := t.seen[name]; !ok {
			delete(t.Repairs, name)
		}
	}
	if t.Rollout == nil {
		return
	}
	gone := func(name string) bool { _, ok := t.seen[name]; return !ok }
	t.Rollout.Members = slices.DeleteFunc(t.Rollout.Members, gone)
	t.Rollout.Touched = slices.DeleteFunc(t.Rollout.Touched, func(h Touch) bool { return gone(h.Instance) })
}

// forgive lets an unreachable instance be tried as soon as it is back.
func (t *step) forgive() {
	for name, i := range t.Instances {
		if !t.seen[name].Reachable && i.Refused.IsZero() {
			i.NotBefore = time.Time{}
			t.Instances[name] = i
		}
	}
}

func (t *step) takeResults() {
	for _, r := range t.o.Results {
		i := t.Instances[r.Instance]
		if i.Push == nil {
			continue
		}
		purpose := i.Push.Purpose
		if !i.Push.AtRuntime && (r.Outcome == NotBegun || r.Outcome == Applied && !r.Reloaded) {
			t.giveBack(r.Instance, i.Push.Since)
		}
		t.Instances[r.Instance] = t.remember(i, r)
		switch r.Outcome {
		case Applied:
			t.applied(r)
			if purpose == CatchUp {
				t.repaired(r.Instance, r.Snapshot)
			}
		case Refused:
			t.refused(r, purpose)
		case Faulty, Trouble, NotBegun: // tried again
		}
	}
	for name, pid := range t.o.Reloads {
		t.spend(name)
		if h := t.touch(name); h != nil {
			h.PID, h.At = pid, t.now
		}
	}
}

// remember records how a push ended. An instance that refused a snapshot would refuse it again, so the next
// push of it waits long. A push of another snapshot does not wait.
func (t *step) remember(i Instance, r Result) Instance {
	switch r.Outcome {
	case Applied:
		return Instance{}
	case NotBegun:
		i.Push = nil
		return i
	case Refused, Faulty:
		return Instance{
			Failures: i.Failures + 1, Refused: r.Snapshot, Faulty: r.Outcome == Faulty, NotBefore: t.now.Add(t.RetryMax),
			Error: r.Error, ErrorAt: t.now,
		}
	default:
		return Instance{
			Failures: i.Failures + 1, NotBefore: t.now.Add(t.backoff(i.Failures + 1)),
			Error: r.Error, ErrorAt: t.now,
		}
	}
}

func (t *step) applied(r Result) {
	h := t.touch(r.Instance)
	switch {
	case h == nil:
	case t.Rollout.Phase == Undoing && r.Snapshot == t.Good:
		h.Undone = true
	case r.Snapshot == h.Snapshot:
		h.Applied, h.PID, h.At, h.Lost = true, r.PID, t.now, time.Time{}
	}
}

// refused ends the rollout of a snapshot that an instance refused. There are two exceptions, in which the
// instance is at fault: the rest of the fleet runs the snapshot, or it is the only one that refuses a proven
// snapshot.
func (t *step) refused(r Result, purpose Purpose) {
	if t.Rollout == nil || t.Rollout.Target != r.Snapshot || purpose != Wave || t.Rollout.Phase == Undoing {
		return
	}
	refusing := 0
	for _, i := range t.Instances {
		if i.Refused == r.Snapshot && !i.Faulty {
			refusing++
		}
	}
	if refusing < 2 && t.provenGood() {
		return
	}
	t.fail(fmt.Sprintf("%s: %s", r.Instance, r.Error))
}

// provenGood reports whether the target was good in this fleet before, or has been on an instance since an
// earlier wave.
func (t *step) provenGood() bool {
	r := t.Rollout
	same := func(id snapshots.ID) bool { return id.Short == r.Target.Short }
	return same(t.Good) || slices.ContainsFunc(t.Proven, same) || slices.ContainsFunc(r.Touched, func(h Touch) bool {
		return r.Wave > 0 && r.Vouched == 0 && !r.Full && t.has(h.Instance) && !slices.Contains(r.Members, h.Instance)
	})
}

// prove records that the whole fleet runs a snapshot.
func (t *step) prove(id snapshots.ID) {
	t.Proven = slices.DeleteFunc(t.Proven, func(p snapshots.ID) bool { return p.Short == id.Short })
	t.Proven = append(t.Proven, id)
	t.Proven = t.Proven[max(0, len(t.Proven)-mostProven):]
}

// mostProven is how many good snapshots are remembered.
const mostProven = 20

// followChannel records which failures the channel shows. It forgets those that the channel no longer shows,
// and those that people withdrew before the channel could show them.
func (t *step) followChannel() {
	if !t.o.Channel {
		return
	}
	t.Failed = slices.DeleteFunc(t.Failed, func(f Failure) bool {
		shown := slices.Contains(t.o.Rejected, f.Snapshot.Short)
		return !shown && (f.Recorded || (!t.undoes(f.Snapshot) && f.Withdrawn(t.o.Wishes)))
	})
	for i, f := range t.Failed {
		t.Failed[i].Recorded = f.Recorded || slices.Contains(t.o.Rejected, f.Snapshot.Short)
	}
}

// holdWithoutWish holds if nothing is wanted, or if what is wanted has failed.
func (t *step) holdWithoutWish() {
	_, failed := t.Failure(t.o.Want, t.o.Intent)
	t.o.Hold = t.o.Hold || failed || t.o.Want.IsZero()
}

// adoptGood determines the good snapshot if the state has none: it is the one that most instances run, apart
// from the wanted one. If all run the wanted one, its rollout has nothing to do, and makes it the good one.
func (t *step) adoptGood() {
	if !t.Good.IsZero() || t.Rollout != nil || t.o.Want.IsZero() {
		return
	}
	votes := make(map[snapshots.ID]int)
	for _, i := range t.o.Instances {
		if !i.Running.IsZero() && i.Running != t.o.Want && !slices.Contains(t.o.Rejected, i.Running.Short) {
			votes[i.Running]++
		}
	}
	for id, n := range votes {
		if best := votes[t.Good]; n > best || (n == best && id.Compare(t.Good) > 0) {
			t.Good = id
		}
	}
}

// choose starts, replaces or undoes the rollout, as the channel wants it. It does nothing during a hold or an
// undo. In a blackout no rollout begins, and the present one goes on unless the good snapshot is wanted again,
// or its target is rejected.
func (t *step) choose() {
	if t.o.Hold || (t.Rollout != nil && t.Rollout.Phase == Undoing) {
		return
	}
	switch r := t.Rollout; {
	case r == nil && t.o.Want != t.Good && t.goodIsWanted():
		t.Good = t.o.Want // there is nothing to roll out
		t.prove(t.Good)
	case r == nil && t.o.Want != t.Good:
		if !t.nothingToDo() && t.dark() {
			return
		}
		t.Rollout = t.begin(nil)
	case r == nil || r.Target == t.o.Want || t.finishFirst():
	case t.goodIsWanted():
		t.undo(fmt.Sprintf("%s is wanted again", t.Good))
	case !t.dark():
		t.Rollout = t.begin(r.Touched)
	case slices.Contains(t.o.Rejected, r.Target.Short):
		t.undo(fmt.Sprintf("%s is rejected", r.Target))
	}
}

// goodIsWanted reports whether the wanted snapshot is the good one, or has its content: the change was reverted.
func (t *step) goodIsWanted() bool { return t.o.Want.Short == t.Good.Short }

// recognize names what each instance runs as this step names its content. Several snapshots may have that content, and
// the caller may know it by another one, such as the wanted snapshot, which a hold keeps from becoming the good one.
func (t *step) recognize() {
	names := []snapshots.ID{t.Good, t.o.Want}
	if t.Rollout != nil {
		names = slices.Insert(names, 0, t.Rollout.Target)
	}
	t.o.Instances = slices.Clone(t.o.Instances)
	for n := range t.o.Instances {
		i := &t.o.Instances[n]
		known := slices.IndexFunc(names, func(id snapshots.ID) bool { return !id.IsZero() && id.Short == i.Running.Short })
		if known >= 0 {
			i.Running = names[known]
			t.seen[i.Name] = *i
		}
	}
}

// nothingToDo reports whether all run the wanted snapshot as it is.
func (t *step) nothingToDo() bool {
	return !slices.ContainsFunc(t.o.Instances, func(i Seen) bool { return i.Running != t.o.Want })
}

// finishFirst reports whether the newer snapshot has to wait for the present rollout: most of the fleet runs
// the target, and if the newer one failed now, all of them would return to what ran before both. It also has to
// if newer ones have replaced rollouts for long enough.
func (t *step) finishFirst() bool {
	if !t.o.MayWait || t.goodIsWanted() || slices.Contains(t.o.Rejected, t.Rollout.Target.Short) {
		return false
	}
	done := 0
	for _, i := range t.o.Instances {
		if t.has(i.Name) {
			done++
		}
	}
	return 2*done > len(t.o.Instances) || t.replacedForLong()
}

// mostReplacing is how long newer snapshots may replace one rollout after the other, if two soaks do not take
// longer.
const mostReplacing = time.Minute

// replacedForLong reports whether newer snapshots have replaced rollouts for so long that the present one, which
// some instance has, is finished first. Otherwise an object that changes all the time, of whichever tenant, would keep
// the changes of all others from every instance but the first. A rollout that is paused, whose soak the gate extends, or
// whose wave takes long, such as for its budget or an instance that hangs, is replaced all the same.
func (t *step) replacedForLong() bool {
	r := t.Rollout
	if r.Unfinished.IsZero() || t.now.Sub(r.Unfinished) <= max(mostReplacing, 2*t.Soak) {
		return false
	}
	slow := t.now.Sub(r.Since) > t.Soak+mostReplacing // in what it does now
	return r.Paused == "" && !slow && t.taken()
}

// begin returns a new rollout. It keeps the instances that the replaced rollout touched, as an undo has to
// bring them back too.
func (t *step) begin(touched []Touch) *Rollout {
	r := &Rollout{
		Target: t.o.Want, Intent: t.o.Intent, Phase: Pushing, Started: t.now, Since: t.now, Touched: touched,
		Promoted: t.o.Promotion.Mark, Aborted: t.o.Abort.Mark,
	}
	if before := t.Rollout; before != nil {
		r.Unfinished = before.Unfinished
		if r.Unfinished.IsZero() {
			r.Unfinished = before.Started
		}
	}
	return r
}

// fail rejects the target and begins the undo.
func (t *step) fail(reason string) {
	r := t.Rollout
	t.Failed = slices.DeleteFunc(t.Failed, func(f Failure) bool { return f.Snapshot.Short == r.Target.Short })
	t.Failed = latest(append(t.Failed, Failure{Snapshot: r.Target, Reason: reason, At: t.now, Intent: r.Intent, Good: t.Good}))
	t.undo(reason)
}

func (t *step) undo(reason string) {
	r := t.Rollout
	r.Phase, r.Since, r.Reason, r.Members = Undoing, t.now, reason, nil
	for i := range r.Touched {
		r.Touched[i].Undone = false
	}
}

// touch returns the rollout's entry for an instance, nil if there is none.
func (t *step) touch(name string) *Touch {
	if t.Rollout == nil {
		return nil
	}
	for i := range t.Rollout.Touched {
		if t.Rollout.Touched[i].Instance == name {
			return &t.Rollout.Touched[i]
		}
	}
	return nil
}

// push begins a push if the instance can take one now. It returns false only if the budget forbids it.
func (t *step) push(name string, id snapshots.ID, purpose Purpose) bool {
	i := t.Instances[name]
	if seen := t.seen[name]; i.Push != nil || seen.Busy || !seen.Reachable || i.holds(id, t.now) {
		return true
	}
	atRuntime := t.needsNoReload(name, id)
	urgent := t.seen[name].Running.IsZero() || purpose == Wave && !t.o.MayWait
	if w, over := t.overBudget(name, urgent); over && purpose != Undo && !atRuntime {
		t.wait(w)
		return false
	}
	if !atRuntime {
		t.spend(name)
	}
	push := Push{Instance: name, Snapshot: id, Purpose: purpose, Since: t.now, AtRuntime: atRuntime}
	t.pushes = append(t.pushes, push)
	i.Push = &push
	t.Instances[name] = i
	return true
}

// patient reports whether a wave should wait for a push of id to the instance. The instance must be reachable.
// It also must have a push under way, be free for one, or not have failed too often.
func (t *step) patient(name string, id snapshots.ID) bool {
	i := t.Instances[name]
	if !t.seen[name].Reachable {
		return false
	}
	return i.Push != nil || !i.holds(id, t.now) || (i.Failures < patience && i.Refused.IsZero())
}

// heed carries out a person's order about the present rollout, once. A promotion ends the soak of the wave, and
// an abort fails the rollout. An order from before its beginning was about another rollout.
func (t *step) heed() {
	r := t.Rollout
	if r == nil || r.Phase == Undoing || !t.o.Channel {
		return
	}
	if a := t.o.Abort; a.Mark != r.Aborted {
		if r.Aborted = a.Mark; a.Snapshot == r.Target {
			if now := naming(t.o.Wishes, r.Target.Short); len(now) > 0 {
				r.Intent = now[0].Intent // the abort is about the present wish, which may be newer than the rollout
			}
			t.fail("aborted" + a.Says)
			return
		}
	}
	if p := t.o.Promotion; p.Mark != r.Promoted {
		if r.Promoted = p.Mark; p.Snapshot == r.Target {
			r.Vouched, r.Full = r.Wave+1, r.Full || p.Full
		}
	}
}

// vouched reports whether a person lets the wave continue without a soak, and without enough requests to judge.
// A failure still stops it.
func (t *step) vouched() bool { return t.Rollout.Full || t.Rollout.Vouched > t.Rollout.Wave }

// darkForWave is dark for a wave of the rollout. A wave to which a person has promoted the rollout also begins
// in a blackout.
func (t *step) darkForWave(wave int) bool {
	r := t.Rollout
	ordered := r.Full || (r.Vouched > 0 && r.Vouched >= wave)
	return !ordered && t.dark()
}

// nextSize returns the size of the next wave.
func (t *step) nextSize() Size {
	if t.Rollout.Full {
		return Size{Percent: 100}
	}
	return t.size(t.Rollout.Wave)
}

// Withdrawn reports whether people named the snapshot again after it was tried, so that its failure no longer
// counts: the new wish was not tried yet. In the channel, naming a snapshot removes its rejection. This does
// the same for a rejection that is not yet in the channel.
func (f Failure) Withdrawn(wishes []Wish) bool {
	wishes = naming(wishes, f.Snapshot.Short)
	return len(wishes) > 0 && !slices.ContainsFunc(wishes, func(w Wish) bool { return w.Intent == f.Intent })
}

// naming returns the wishes for a content.
func naming(wishes []Wish, short string) []Wish {
	return slices.DeleteFunc(slices.Clone(wishes), func(w Wish) bool { return w.Snapshot.Short != short })
}

// undoes reports whether a rollout of the snapshot is being undone. Its failure stays visible until that is
// over.
func (t *step) undoes(id snapshots.ID) bool {
	return t.Rollout != nil && t.Rollout.Phase == Undoing && t.Rollout.Target == id
}

// Wait is a reason why a rollout or an instance does not continue now.
type Wait struct {
	// For says in a few words what is waited for.
	For string `json:"for"`
	// Instance is the instance that waits, "" if the fleet does.
	Instance string `json:"instance,omitempty"`
	// Until is when the wait ends, zero if that is not known.
	Until time.Time `json:"until,omitzero"`
}

// wait records a wait, once.
func (t *step) wait(w Wait) {
	if !slices.Contains(t.waits, w) {
		t.waits = append(t.waits, w)
	}
}
