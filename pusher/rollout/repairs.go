package rollout

import (
	"fmt"
	"slices"
	"time"

	"github.com/hapsnap/hapsnap/snapshots"
)

// catchUp brings instances to what the fleet runs that are no part of a wave:
// new ones, those that were away, those that somebody else changed, and
// those whose slots no longer suffice.
func (t *turn) catchUp() {
	for _, i := range t.o.Instances {
		id := t.settled(i)
		if r := t.Repairs[i.Name]; !id.IsZero() && r.Snapshot != id {
			t.settleConflict(i.Name)
		}
		switch {
		case id.IsZero():
		case (i.Running != id || i.Foreign) && t.inConflict(i, id):
		case i.Running != id || i.Foreign:
			t.push(i.Name, id, CatchUp)
		case i.Stale && t.mayReshape():
			t.push(i.Name, id, Reshape)
		}
	}
}

// forget drops the trouble of instances that turn out to run what they should:
// the answer of a push may be lost, and the push may have come through.
func (t *turn) forget() {
	for _, seen := range t.o.Instances {
		i := t.Instances[seen.Name]
		if i.Push == nil && i.Refused.IsZero() && seen.Reachable && !seen.Stale && !seen.Foreign && !seen.Running.IsZero() && seen.Running == t.settled(seen) {
			delete(t.Instances, seen.Name)
			t.settleConflict(seen.Name)
		}
	}
}

// settled returns what an instance should run as long as it is not its turn,
// zero while a rollout sees to it.
func (t *turn) settled(i Seen) snapshots.ID {
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

// mayReshape lets instances reload for a change of shape one after another, and
// stops at the first that refuses. An instance that hangs does not stop the others.
func (t *turn) mayReshape() bool {
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

// A repair conflict: what the pusher repairs is undone by somebody else, such as a second
// pusher, or a supervisor that starts HAProxy with an old file. Two programs that overwrite
// each other serve nobody, so after maxRepairs within repairWindow there are no more repairs
// until all is as it should be, or conflictCooldown is over.
const (
	maxRepairs       = 3
	repairWindow     = 10 * time.Minute
	conflictCooldown = time.Hour
)

// Repairs are what was done lately to an instance that somebody else had changed. The zero
// value is none. It is a value: its methods return the next one.
type Repairs struct {
	// Snapshot is what the instance was brought back to; zero for repairs of files and
	// servers.
	Snapshot snapshots.ID `json:"snapshot"`
	At       []time.Time  `json:"at,omitempty"` // the last ones, oldest first
	// Stopped is since when there are no more of them, zero while there are.
	Stopped time.Time `json:"stopped,omitzero"`
	// Found is what the instance ran when they stopped.
	Found string `json:"found,omitempty"`
}

// InConflict reports whether there are no more repairs.
func (r Repairs) InConflict() bool { return !r.Stopped.IsZero() }

// Due decides about a repair that is due: whether it may be done. Where it is the one too
// many, a conflict begins; where a conflict has cooled down, it ends.
func (r Repairs) Due(now time.Time) (next Repairs, may bool) {
	if r.InConflict() {
		if now.Sub(r.Stopped) < conflictCooldown {
			return r, false
		}
		return Repairs{Snapshot: r.Snapshot}, true
	}
	r.At = slices.DeleteFunc(slices.Clone(r.At), func(at time.Time) bool { return now.Sub(at) >= repairWindow })
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

// Settled notes that all is as it should be: a conflict is over, and repairs count anew.
func (r Repairs) Settled() Repairs {
	if r.InConflict() {
		return Repairs{Snapshot: r.Snapshot}
	}
	return r
}

// DescribeConflict says that there are no more repairs, and why: what differs.
func DescribeConflict(differs string) string {
	return fmt.Sprintf("somebody else keeps changing it, %d repairs in %.0f minutes were undone: %s", maxRepairs, repairWindow.Minutes(), differs)
}

// repaired notes a push to an instance that is no part of a wave.
func (t *turn) repaired(name string, id snapshots.ID) {
	r := t.Repairs[name]
	if r.Snapshot != id {
		r = Repairs{Snapshot: id}
	}
	t.Repairs[name] = r.Done(t.now)
}

// inConflict reports whether somebody else keeps taking an instance from a snapshot, so that
// it is not brought back to it now.
func (t *turn) inConflict(i Seen, id snapshots.ID) bool {
	r, known := t.Repairs[i.Name]
	if !known || r.Snapshot != id {
		return false
	}
	next, may := r.Due(t.now)
	if next.InConflict() && !r.InConflict() {
		next.Found = "another configuration"
		switch {
		case i.Foreign:
			next.Found = "a worker that names it and was started from another configuration"
		case !i.Running.IsZero():
			next.Found = i.Running.String()
		}
	}
	if t.Repairs[i.Name] = next; len(next.At) == 0 && !next.InConflict() {
		delete(t.Repairs, i.Name)
	}
	return !may
}

// settleConflict forgets a conflict over an instance that runs what it should, or should run
// something else by now.
func (t *turn) settleConflict(name string) {
	if t.Repairs[name].InConflict() {
		delete(t.Repairs, name)
	}
}
