package rollout

import (
	"fmt"
	"slices"
	"time"

	"github.com/hapsnap/hapsnap/snapshots"
)

// Patience with instances that another hand keeps taking from what the fleet runs,
// such as a second pusher, or a supervisor that starts HAProxy with an old file.
const (
	maxRepairs   = 3
	repairWindow = 10 * time.Minute
	truce        = time.Hour // after which it is tried again
)

// Repairs are the pushes that brought an instance to a snapshot that it should have
// been running, apart from any rollout.
type Repairs struct {
	Snapshot snapshots.ID `json:"snapshot"`
	At       []time.Time  `json:"at,omitempty"` // the last ones, oldest first
	// Stopped is since when there are no more of them, zero while there are: they were
	// undone too often. The instance is left alone until it runs the snapshot, until
	// the fleet runs another one, or for an hour.
	Stopped time.Time `json:"stopped,omitzero"`
}

// repaired notes a push to an instance that is no part of a wave.
func (t *turn) repaired(name string, id snapshots.ID) {
	r := t.Repairs[name]
	if r.Snapshot != id {
		r = Repairs{Snapshot: id}
	}
	r.At = slices.DeleteFunc(slices.Clone(r.At), func(at time.Time) bool { return t.now.Sub(at) >= repairWindow })
	r.At = append(r.At, t.now)
	t.Repairs[name] = r
}

// fights reports whether another hand keeps taking an instance from a snapshot, so that
// it is not brought back to it now.
func (t *turn) fights(i Seen, id snapshots.ID) bool {
	r, known := t.Repairs[i.Name]
	if !known || r.Snapshot != id {
		return false
	}
	if !r.Stopped.IsZero() {
		if t.now.Sub(r.Stopped) < truce {
			return true
		}
		delete(t.Repairs, i.Name)
		return false
	}
	if len(r.At) < maxRepairs || t.now.Sub(r.At[len(r.At)-maxRepairs]) >= repairWindow {
		return false
	}
	r.Stopped = t.now
	t.Repairs[i.Name] = r
	found := "another configuration"
	switch {
	case i.Foreign:
		found = "a worker that names it and was started from another configuration"
	case !i.Running.IsZero():
		found = i.Running.String()
	}
	remembered := t.Instances[i.Name]
	remembered.Error = fmt.Sprintf("another hand keeps changing it, %d repairs in %.0f minutes were undone: want %s, found %s",
		maxRepairs, repairWindow.Minutes(), id, found)
	remembered.ErrorAt = t.now
	t.Instances[i.Name] = remembered
	return true
}

// makePeace forgets a fight over an instance that runs what it should.
func (t *turn) makePeace(name string) {
	if !t.Repairs[name].Stopped.IsZero() {
		delete(t.Repairs, name)
	}
}
