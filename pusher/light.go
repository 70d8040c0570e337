package pusher

import (
	"errors"
	"slices"

	"github.com/hapsnap/hapsnap/pusher/push"
	"github.com/hapsnap/hapsnap/pusher/rollout"
	"github.com/hapsnap/hapsnap/snapshots"
)

// knowRunning reports whether the snapshots are at hand that the instances run, as far
// as the store has them. What it takes to bring them to another cannot be told before.
func (e *engine) knowRunning() bool {
	for _, i := range e.instances {
		id := i.snapshot()
		_, has := e.library.have[id]
		if _, failed := e.library.failed[id]; i.reachable() && !has && !failed && slices.Contains(e.view.IDs, id) {
			return false
		}
	}
	return true
}

// light returns the snapshots that an instance can be brought to without a reload.
func (e *engine) light(i *instance) []snapshots.ID {
	var out []snapshots.ID
	from := i.snapshot()
	if i.foreign() != "" {
		return nil // it has something else than what is changed
	}
	for _, id := range i.matters {
		if id.Short != from.Short && id.Short != i.heavy && e.bindings.light(i.info.Node, from, id, i.Layout) {
			out = append(out, id)
		}
	}
	return out
}

// failedLight takes note of a worker that was not changed, or in part. The file on disk
// may be ahead of it. After another failure it is to be reloaded.
func (e *engine) failedLight(i *instance, p rollout.Push, err error) {
	if errors.Is(err, push.ErrNeedsReload) || e.state.Rollout.Instances[p.Instance].Failures > 0 {
		i.heavy = p.Snapshot.Short
	}
	i.running = i.running.Another()
	i.running.Disk = push.Digest{}
}
