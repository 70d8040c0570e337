package rollout

import (
	"fmt"
	"slices"
	"time"

	"github.com/hapsnap/hapsnap/snapshots"
)

// catchUp brings instances outside of a wave to what the fleet runs: new ones, those that were away, those that
// somebody else changed, and those with too few slots.
func (t *step) catchUp() {
	for _, i := range t.o.Instances {
		id := t.settled(i)
		if r := t.Repairs[i.Name]; !id.IsZero() && r.Snapshot != id {
			t.settleConflict(i.Name)
		}
		switch {
		case id.IsZero():
		case (i.Running != id || i.Foreign != "") && t.inConflict(i, id):
		case i.Running != id || i.Foreign != "":
			t.push(i.Name, id, CatchUp)
		case i.Stale && t.mayReshape():
			before := len(t.pushes)
			t.push(i.Name, id, Reshape)
			if t.Rollout != nil && t.touch(i.Name) != nil && len(t.pushes) > before {
				t.Rollout.Reshapes++
			}
		}
	}
}

// forget drops the failures of instances that run what they should: a push may have succeeded although its
// answer was lost.
func (t *step) forget() {
	for _, seen := range t.o.Instances {
		i := t.Instances[seen.Name]
		if i.Push == nil && i.Refused.IsZero() && seen.Reachable && !seen.Stale && seen.Foreign == "" && !seen.Running.IsZero() && seen.Running == t.settled(seen) {
			delete(t.Instances, seen.Name)
			t.settleConflict(seen.Name)
		}
	}
}

// settled returns what an instance should run outside of a wave. It is zero while a rollout takes care of the
// instance.
func (t *step) settled(i Seen) snapshots.ID {
	h := t.touch(i.Name)
	switch {
	case h == nil:
		return t.Good
	case h.Applied && i.Running == h.Snapshot && t.Rollout.Phase != Undoing:
		return h.Snapshot
	default:
		return snapshots.ID{}
	}
}

// mayReshape lets instances reload for a change of shape one after another, and stops at the first that
// refuses. An instance whose push hangs does not stop the others.
func (t *step) mayReshape() bool {
	for _, i := range t.Instances {
		if i.Push != nil && i.Push.Purpose == Reshape && t.now.Sub(i.Push.Since) <= t.Grace {
			return false
		}
		if !i.Refused.IsZero() && i.Refused == t.Good && t.now.Before(i.NotBefore) {
			return false
		}
	}
	return true
}

// A repair conflict begins if something else keeps undoing the pusher's repairs, such as a second pusher, or a
// supervisor that starts HAProxy with an old file. Two programs that overwrite each other help nobody. So after
// maxRepairs within repairWindow the pusher stops repairing, until everything is as it should be, or
// conflictCooldown is over. If a worker runs no snapshot at all, as after a restart of HAProxy without its
// configuration, the next repair comes after idleCooldown, since such a worker serves nobody.
const (
	maxRepairs       = 3
	repairWindow     = 10 * time.Minute
	conflictCooldown = time.Hour
	idleCooldown     = repairWindow
)

// Repairs are the recent repairs of an instance that something else had changed. The zero value has none. Its
// methods return the next value.
type Repairs struct {
	// Snapshot is what the instance was brought back to. It is zero for repairs of files and servers.
	Snapshot snapshots.ID `json:"snapshot"`
	At       []time.Time  `json:"at,omitempty"` // the last ones, oldest first
	// Stopped is when repairs stopped, zero if they have not.
	Stopped time.Time `json:"stopped,omitzero"`
	// Found is what the instance ran when they stopped.
	Found string `json:"found,omitempty"`
}

// InConflict reports whether repairs have stopped.
func (r Repairs) InConflict() bool { return !r.Stopped.IsZero() }

// Due decides whether a repair may be done now. If it would exceed maxRepairs, a conflict
// begins. If a conflict has cooled down, it ends.
func (r Repairs) Due(now time.Time) (next Repairs, may bool) { return r.due(now, conflictCooldown) }

func (r Repairs) due(now time.Time, cooldown time.Duration) (next Repairs, may bool) {
	if r.Stopped.After(now) {
		r.Stopped = now // the clock was set back
	}
	r.At = slices.Clone(r.At)
	for n, at := range r.At {
		if at.After(now) {
			r.At[n] = now
		}
	}
	if r.InConflict() {
		if now.Sub(r.Stopped) < cooldown {
			return r, false
		}
		return Repairs{Snapshot: r.Snapshot}, true
	}
	r.At = slices.DeleteFunc(r.At, func(at time.Time) bool { return now.Sub(at) >= repairWindow })
	if len(r.At) >= maxRepairs {
		r.Stopped = now
		return r, false
	}
	return r, true
}

// Done counts a repair.
func (r Repairs) Done(now time.Time) Repairs {
	r.At = slices.DeleteFunc(slices.Clone(r.At), func(at time.Time) bool { return now.Sub(at) >= repairWindow })
	r.At = append(r.At, now)
	return r
}

// Settled records that everything is as it should be: it ends a conflict, and resets the count.
func (r Repairs) Settled() Repairs {
	if r.InConflict() {
		return Repairs{Snapshot: r.Snapshot}
	}
	return r
}

// DescribeConflict returns the message of a conflict, with what differs.
func DescribeConflict(differs string) string {
	return fmt.Sprintf("somebody else keeps changing it, %d repairs in %.0f minutes were undone: %s", maxRepairs, repairWindow.Minutes(), differs)
}

// repaired records a push to an instance outside of a wave.
func (t *step) repaired(name string, id snapshots.ID) {
	r := t.Repairs[name]
	if r.Snapshot != id {
		r = Repairs{Snapshot: id}
	}
	t.Repairs[name] = r.Done(t.now)
}

// inConflict reports whether something else keeps replacing this snapshot on an instance, so that it is not
// pushed now.
func (t *step) inConflict(i Seen, id snapshots.ID) bool {
	r, known := t.Repairs[i.Name]
	if !known || r.Snapshot != id {
		return false
	}
	cooldown := conflictCooldown
	if i.Running.IsZero() {
		cooldown = idleCooldown
	}
	next, may := r.due(t.now, cooldown)
	if next.InConflict() && !r.InConflict() {
		next.Found = "another configuration"
		switch {
		case i.Foreign != "":
			next.Found = fmt.Sprintf("%s, but %s", i.Running, i.Foreign)
		case !i.Running.IsZero():
			next.Found = i.Running.String()
		}
	}
	if t.Repairs[i.Name] = next; len(next.At) == 0 && !next.InConflict() {
		delete(t.Repairs, i.Name)
	}
	return !may
}

// settleConflict forgets a conflict over an instance that runs what it should, or that should run another
// snapshot now.
func (t *step) settleConflict(name string) {
	if t.Repairs[name].InConflict() {
		delete(t.Repairs, name)
	}
}

// shakyFor is how long an instance counts as unreliable after a worker of it died.
const shakyFor = 10 * time.Minute

// died handles an instance that lost its worker after it got the target, or that stays unreachable. One such
// instance in a wave counts as its own problem: machines restart, and processes are killed. The wave continues
// with the same instance if it is back, and with another one otherwise. The second one counts against the
// target, unless a worker also died with what ran before. What somebody else did to workers never counts against it: the
// instance is pushed to again. If that goes on, the rollout pauses.
func (t *step) died(h *Touch, seen Seen, reason string) {
	r := t.Rollout
	foreign := seen.Reachable && seen.Foreign != ""
	r.Deaths = append(r.Deaths, Death{h.Instance, h.PID, foreign})
	crashes := slices.DeleteFunc(slices.Clone(r.Deaths), func(d Death) bool { return d.Foreign })
	switch {
	case foreign && len(r.Deaths)-len(crashes) > maxRepairs:
		t.pause(h.Instance + ": " + reason + innocent(alike))
		r.Deaths = crashes
		t.resettle(h, seen)
		return
	case !foreign && len(crashes) > 1:
		if other, old := t.oldDied(h); old {
			t.pause(fmt.Sprintf("%s: %s; %s", h.Instance, reason, other))
			t.resettle(h, seen)
			return
		}
		t.fail(fmt.Sprintf("%s: %s, the second time in this wave", h.Instance, reason))
		return
	}
	t.note(h.Instance + ": " + reason)
	t.resettle(h, seen)
	if r.Phase == Soaking && seen.Reachable {
		r.Since, r.Suspects = t.now, nil
	}
}

// resettle begins to watch again an instance that lost its worker: with its present worker, or after another
// push, in this wave or a later one.
func (t *step) resettle(h *Touch, seen Seen) {
	r := t.Rollout
	h.Lost = time.Time{}
	if seen.Reachable && seen.Running == r.Target && seen.Foreign == "" {
		h.PID, h.At = seen.PID, t.now
		return
	}
	h.Applied = false
	if member := slices.Index(r.Members, h.Instance); member >= 0 && !seen.Reachable {
		r.Members = slices.Delete(r.Members, member, member+1)
	}
	if again := seen.Reachable && slices.Contains(r.Members, h.Instance); r.Phase == Soaking && (again || !slices.ContainsFunc(r.Members, t.has)) {
		r.Phase, r.Since, r.Held, r.Interrupted = Pushing, t.now, time.Time{}, time.Time{}
	}
}

// backAlive forgets the death of an instance that is reachable again with the same worker: it had not died.
func (t *step) backAlive(h *Touch, seen Seen) {
	r := t.Rollout
	r.Deaths = slices.DeleteFunc(r.Deaths, func(d Death) bool {
		return d.Instance == h.Instance && d.PID == seen.PID && !seen.Started.After(h.At.Add(startSlack))
	})
}

// oldDied reports whether a worker died that did not have the target.
func (t *step) oldDied(h *Touch) (string, bool) {
	if h.Shaky {
		return "a worker died there before it got this", true
	}
	for _, seen := range t.o.Instances {
		if t.touch(seen.Name) == nil && seen.Reachable && seen.Started.After(t.Rollout.From.Add(startSlack)) && !t.reloaded(seen.Name) {
			return fmt.Sprintf("so did that of %s, which does not have this", seen.Name), true
		}
	}
	return "", false
}

// before returns the touch of an instance that is about to get a push, with what is known about its present
// worker.
func (t *step) before(seen Seen) Touch {
	h := Touch{Instance: seen.Name, Snapshot: t.Rollout.Target, Was: seen.PID, Before: seen.Sample.Past}
	if s := seen.Sample; !s.At.IsZero() && s.PID == seen.PID && seen.Running == t.Good && !t.Good.IsZero() {
		h.Asked, h.Age = s.At, s.Age
		h.Down = slices.DeleteFunc(slices.Concat(s.Down, s.Flapped), t.unknown)
		slices.Sort(h.Down)
		h.Down = slices.Compact(h.Down)
	}
	h.Shaky = !seen.Died.IsZero() && t.now.Sub(seen.Died) < shakyFor
	return h
}

// note keeps an observation for people that does not count against the target.
func (t *step) note(what string) { t.Rollout.Noted = what }

// hangs reports whether a push to the instance has taken longer than a wave may.
func (t *step) hangs(name string) bool {
	push := t.Instances[name].Push
	return push != nil && t.now.Sub(push.Since) > t.Deadline
}

// mostFaulty is how many instances may be unable to take the target before no others are tried. Each has cost a
// reload.
const mostFaulty = 2

// spared reports whether an instance gets no push because others cannot take the target for reasons of their
// own, and none has it: the same may be wrong with all. While no good snapshot is known, one such instance is
// enough.
func (t *step) spared(name string) bool {
	faulty := 0
	for other, i := range t.Instances {
		if i.Faulty && i.Refused == t.Rollout.Target && other != name {
			faulty++
		}
	}
	enough := mostFaulty
	if t.Good.IsZero() {
		enough = 1
	}
	if faulty < enough || t.Instances[name].Faulty || slices.ContainsFunc(t.Rollout.Touched, func(h Touch) bool { return t.has(h.Instance) }) {
		return false
	}
	t.wait(Wait{For: fmt.Sprintf("an instance that can take it; %d cannot, for faults of their own", faulty)})
	return true
}
