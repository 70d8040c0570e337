package core

import (
	"errors"
	"time"

	"github.com/hapsnap/hapsnap/pusher/instance"
	"github.com/hapsnap/hapsnap/pusher/observe"
	"github.com/hapsnap/hapsnap/pusher/push"
	"github.com/hapsnap/hapsnap/pusher/rollout"
)

// jobs begins what the instances need, and takes what became of it.
type jobs struct {
	*world
	saving     *saving
	leadership *leadership
	uploads    *uploads
}

// beginPush begins a push.
func (j *jobs) beginPush(p rollout.Push, now time.Time) {
	i := j.instances[p.Instance]
	j.tell(observe.Info("push begins", "instance", p.Instance, "snapshot", p.Snapshot, "why", p.Purpose.Why()), now)
	i.begin(workPush)
	j.do(instance.Push{
		Ref: i.ref(), Push: p, Want: j.bindings.Unbound(p.Snapshot, i.Layout), Whole: i.snapshot() != p.Snapshot,
		Running: j.bindings.Unbound(i.snapshot(), i.Layout), Have: i.running, Traceparent: j.traceparent(p.Snapshot),
	})
}

// beginApproved begins the pushes whose state is saved. One waits for a job that is under way
// on its instance; one that no longer fits is not begun.
func (j *jobs) beginApproved(may bool, now time.Time) {
	var waiting []approval
	for _, a := range j.saving.approved {
		switch i := j.instances[a.Instance]; {
		case !may || i == nil || i.ref() != a.on || !i.reachable() || i.ledByOther() || j.unclaimed(i) || !a.holds(j.decision, j.view):
			j.tell(observe.Info("push not begun, what it was decided on has changed", "instance", a.Instance, "snapshot", a.Snapshot, "why", a.Purpose.Why()), now)
			j.results = append(j.results, rollout.Result{Instance: a.Instance, Snapshot: a.Snapshot, Outcome: rollout.NotBegun})
		case i.busy != "":
			waiting = append(waiting, a)
		default:
			j.beginPush(a.Push, now)
		}
	}
	j.saving.approved = waiting
}

// beginWork begins what the instances need apart from the rollout.
func (j *jobs) beginWork(now time.Time) {
	for _, name := range j.names() {
		i := j.instances[name]
		w := j.stands(i, now)
		if w == workNothing || w == workReload || j.saving.reservedFor(i, now) {
			continue
		}
		if w == workUpdate {
			j.beginUpdate(i)
			continue
		}
		i.begin(w)
		on, want := i.ref(), j.bindings.Unbound(i.snapshot(), i.Layout)
		switch w {
		case workPersist:
			j.do(instance.Persist{Ref: on, Want: want, Have: i.running})
		case workTidy:
			j.do(instance.Tidy{Ref: on, Have: i.running})
		case workCollect:
			garbage := i.garbage
			i.garbage, i.collected = nil, now
			j.do(instance.Collect{Ref: on, Garbage: garbage})
		case workInspect:
			j.do(instance.Inspect{Ref: on, Want: want, Have: i.running, Round: i.inspections})
		case workNothing, workReload, workUpdate:
		}
	}
}

// beginUpdate begins to bring a worker up to date.
func (j *jobs) beginUpdate(i *instanceState) {
	i.begin(workUpdate)
	j.do(instance.Update{
		Ref: i.ref(), Want: j.wanted(i), Whole: j.bindings.Unbound(i.snapshot(), i.Layout), Have: i.running,
		Running: i.snapshot(), Traceparent: j.traceparent(i.snapshot()),
	})
}

// wanted returns what the worker should have of the snapshot that it runs.
func (j *jobs) wanted(i *instanceState) push.Wanted {
	n, _ := j.bindings.Node(i.snapshot(), i.Layout)
	p, _ := j.bindings.Of(i.snapshot())
	return push.Wanted{Node: n.Name, Servers: p.Servers, Dynamic: p.Dynamic, Certificates: n.Certificates, Entries: n.Entries}
}

// runtimeUpdateFailed takes note of a worker that was not changed, or in part. The file on disk
// may be ahead of it. After another failure it is to be reloaded.
func (j *jobs) runtimeUpdateFailed(i *instanceState, p rollout.Push, err error) {
	if errors.Is(err, push.ErrNeedsReload) || j.state.Rollout.Instances[p.Instance].Failures > 0 {
		i.needsReload = p.Snapshot.Short
	}
	i.running = i.running.Another()
	i.running.Disk = push.Digest{}
}
