package pusher

import (
	"bytes"
	"encoding/json"
	"errors"
	"reflect"
	"slices"
	"time"

	"github.com/hapsnap/hapsnap/pusher/push"
	"github.com/hapsnap/hapsnap/pusher/rollout"
	"github.com/hapsnap/hapsnap/snapshots"
	"github.com/hapsnap/hapsnap/snapshots/bind"
)

// beginPush begins a push.
func (e *engine) beginPush(p rollout.Push) {
	i := e.instances[p.Instance]
	e.Log.Info("push begins", "instance", p.Instance, "snapshot", p.Snapshot, "why", string(p.Purpose))
	i.begin(workPush)
	want := e.bind(p.Snapshot, i)
	want.whole = i.snapshot() != p.Snapshot
	span := e.traces.push(p, e.traceparent(p.Snapshot))
	e.begin(pushSnapshot{remote: e.remote(i), push: p, want: want, running: e.bind(i.snapshot(), i), have: i.running, span: span})
}

// stands classifies what an instance needs; now is only looked at for the kinds
// of work that have to wait.
func (e *engine) stands(i *instance, now time.Time) work { return classify(e.needsOf(i), now) }

func (e *engine) needsOf(i *instance) instanceNeeds {
	n, ok := e.bindings.node(i.snapshot(), i.Layout)
	s := instanceNeeds{
		Busy: i.busy != "" || e.unclaimed(i), Reachable: i.reachable() && !i.ledByOther(), Bound: ok && n.err == nil,
		SameNode: n.node != "" && n.node == i.info.Node || bind.SameNode(n.node, i.info.Node), NotBefore: i.jobNotBefore,
		Persisted: i.running.Persisted, PersistAfter: i.persisted.Add(e.PersistInterval),
		Garbage: len(i.garbage) > 0, CollectAfter: i.collectAfter, Overdue: e.overdue(i), InspectAfter: i.inspectAfter,
	}
	if s.Bound && s.SameNode {
		servers := e.bindings.prepared[i.snapshot()].servers
		s.SameServers = i.hasServers(servers)
		s.Unserved = i.leavesUnserved(servers)
		s.UrgentAfter = i.persisted.Add(i.persistTook)
		s.Deferred, s.DeferredUntil = i.running.Deferred, i.persisted.Add(deferral(i.persistTook, e.PersistInterval))
		s.Leftover, s.TidyAfter = len(i.running.Dynamic) > 0 && len(i.running.Leftovers()) > 0, i.tidied.Add(tidyInterval)
		s.Updated = i.lastWork == workUpdate
		s.SameMaps = i.running.Maps == n.entries
		s.SameCertificates = n.certificates.In(i.running.Certificates)
	}
	return s
}

// beginWork begins what the instances need apart from the rollout.
func (e *engine) beginWork(now time.Time) {
	for _, name := range e.names() {
		i := e.instances[name]
		w := e.stands(i, now)
		if w == workNothing || w == workReload || e.saves.reservedFor(i, now) {
			continue
		}
		i.begin(w)
		on, bind := e.remote(i), e.bind(i.snapshot(), i)
		switch w {
		case workUpdate:
			span := e.traces.update(name, i.snapshot(), e.traceparent(i.snapshot()))
			e.begin(updateWorker{remote: on, want: e.wanted(i), whole: bind, have: i.running, span: span})
		case workPersist:
			e.begin(persistServers{on, bind, i.running})
		case workTidy:
			e.begin(tidyWorker{on, i.running})
		case workCollect:
			garbage := i.garbage
			i.garbage, i.collected = nil, now
			e.begin(collectFiles{on, garbage})
		case workInspect:
			e.begin(inspectInstance{on, bind, i.running, i.inspections})
		case workNothing, workReload:
		}
	}
}

// wanted returns what the worker should have of the snapshot that it runs.
func (e *engine) wanted(i *instance) push.Wanted {
	n, _ := e.bindings.node(i.snapshot(), i.Layout)
	p := e.bindings.prepared[i.snapshot()]
	return push.Wanted{Node: n.node, Servers: p.servers, Dynamic: p.dynamic, Certificates: n.certificates, Entries: n.entries}
}

// reject writes the failures into the channel that it does not show yet.
func (e *engine) reject(now time.Time) {
	named := wishes(e.view.Channel, now)
	failures := slices.DeleteFunc(e.state.Rollout.Unrecorded(), func(f rollout.Failure) bool { return f.Withdrawn(named) })
	if len(failures) == 0 || e.rejecting || now.Before(e.rejectAt) || !e.viewRead {
		return
	}
	f := failures[0]
	snapshot, known := e.snapshotCache.have[f.Snapshot]
	e.rejecting = true
	e.begin(writeRejection{e.Store, f, e.view.Fleet, snapshot.Manifest.Spec.Digest, known, now})
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

// knowRunning reports whether the snapshots are at hand that the instances run, as far
// as the store has them. What it takes to bring them to another cannot be told before.
func (e *engine) knowRunning() bool {
	for _, i := range e.instances {
		id := i.snapshot()
		_, has := e.snapshotCache.have[id]
		if _, failed := e.snapshotCache.failed[id]; i.reachable() && !has && !failed && slices.Contains(e.view.IDs, id) {
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
