package rollout

import "github.com/hapsnap/hapsnap/snapshots"

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
