package rollout

import (
	"fmt"
	"slices"
	"time"
)

// shakyFor is how long an instance counts as unreliable after a worker of it died.
const shakyFor = 10 * time.Minute

// died decides about an instance that lost its worker after it got the target, or that is
// out of reach. One such instance in a wave counts as its own problem: machines restart,
// and processes are killed. The wave goes on, with the same instance if it is back,
// otherwise with another one. The second in a wave counts against the target, unless a
// worker died with what ran before, too.
func (t *turn) died(h *Touch, seen Seen, reason string) {
	r := t.Rollout
	r.Deaths = append(r.Deaths, Death{h.Instance, h.PID})
	if len(r.Deaths) > 1 {
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

// resettle watches an instance that lost its worker anew: with its present worker, or after
// another push, in this wave or a later one.
func (t *turn) resettle(h *Touch, seen Seen) {
	r := t.Rollout
	h.Lost = time.Time{}
	if seen.Reachable && seen.Running == r.Target && !seen.Foreign {
		h.PID, h.At = seen.PID, t.now
		return
	}
	h.Applied = false
	if member := slices.Index(r.Members, h.Instance); member >= 0 && !seen.Reachable {
		r.Members = slices.Delete(r.Members, member, member+1)
	}
	if again := seen.Reachable && slices.Contains(r.Members, h.Instance); r.Phase == Soaking && (again || !slices.ContainsFunc(r.Members, t.has)) {
		r.Phase, r.Since, r.Held = Pushing, t.now, time.Time{}
	}
}

// backAlive forgets the death of an instance that is within reach again with the same
// worker: it had not died.
func (t *turn) backAlive(h *Touch, seen Seen) {
	r := t.Rollout
	r.Deaths = slices.DeleteFunc(r.Deaths, func(d Death) bool {
		return d.Instance == h.Instance && d.PID == seen.PID && !seen.Started.After(h.At.Add(startSlack))
	})
}

// oldDied reports whether a worker also died with what ran before.
func (t *turn) oldDied(h *Touch) (string, bool) {
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

// before returns the touch of an instance that is about to get a push, with what is known
// of its present worker.
func (t *turn) before(seen Seen) Touch {
	h := Touch{Instance: seen.Name, Snapshot: t.Rollout.Target, Was: seen.PID, Before: seen.Sample.Past}
	if s := seen.Sample; !s.At.IsZero() && s.PID == seen.PID && seen.Running == t.Good && !t.Good.IsZero() {
		h.Asked, h.Age = s.At, s.Age
		h.Down = slices.Concat(s.Down, s.Flapped)
		slices.Sort(h.Down)
		h.Down = slices.Compact(h.Down)
	}
	h.Shaky = !seen.Died.IsZero() && t.now.Sub(seen.Died) < shakyFor
	return h
}

// note keeps an observation that does not count against the target, for people.
func (t *turn) note(what string) { t.Rollout.Noted = what }

// hangs reports whether a push to the instance takes longer than a wave may.
func (t *turn) hangs(name string) bool {
	push := t.Instances[name].Push
	return push != nil && t.now.Sub(push.Since) > t.Deadline
}

// mostFaulty is how many instances may be at fault before the others are left alone. Each
// of them has spent a reload.
const mostFaulty = 2

// spared reports whether an instance gets no push because others cannot take the target for
// reasons of their own, and none has it: what is wrong with them may be wrong with all. If
// nothing is known to be good, one is enough.
func (t *turn) spared(name string) bool {
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
