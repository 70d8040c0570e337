package core

import (
	"iter"
	"maps"
	"slices"
	"time"

	"github.com/hapsnap/hapsnap/pusher/fleet"
	"github.com/hapsnap/hapsnap/pusher/instance"
	"github.com/hapsnap/hapsnap/pusher/observe"
	"github.com/hapsnap/hapsnap/pusher/push"
)

// An instance whose pod terminates drains: its HAProxy serves the connections that it has until
// they end, which may take minutes, and the servers behind it come and go meanwhile. These are
// the rules:
//
//   - It is of the fleet no more: there are no pushes and no repairs, no wave and no budget counts
//     it, nothing waits for it, and the health gate does not look at it. A rollout sees it as one
//     that left.
//   - What was under way on it ends at once. A reload would start a worker that nobody has told to
//     stop, and the pod would be killed with its connections.
//   - Its worker gets endpoints, certificates and entries of maps at run time, like any other. If
//     endpoints have outgrown the slots that its worker was loaded with, only a reload would help,
//     and it stays as it is.
//   - It is gone when its pod is.

// served returns all instances whose workers get live data: those of the fleet, then those that
// drain, each by name.
func (w *world) served() iter.Seq[*instanceState] {
	return func(yield func(*instanceState) bool) {
		for _, of := range []map[string]*instanceState{w.instances, w.draining} {
			for _, name := range slices.Sorted(maps.Keys(of)) {
				if !yield(of[name]) {
					return
				}
			}
		}
	}
}

// letGo lets go of the instances that drain and are gone, or whose name another one has. It comes
// before others join.
func (m *membership) letGo(drain map[string]fleet.Instance, now time.Time) {
	for _, name := range slices.Sorted(maps.Keys(m.draining)) {
		i := m.draining[name]
		if spec, there := drain[name]; there && i.sameBut(spec) {
			if i.Instance != spec {
				m.renew(i, spec, now)
			}
			continue
		}
		m.do(instance.Leave{Ref: i.ref()})
		delete(m.draining, name)
		m.tell(observe.Info("instance left the fleet", "instance", name), now)
	}
}

// drain follows the instances that drain: those of the fleet that begin to, and those that did
// before this pusher began.
func (m *membership) drain(specs map[string]fleet.Instance, now time.Time) {
	for _, name := range slices.Sorted(maps.Keys(specs)) {
		spec := specs[name]
		if m.draining[name] != nil || instance.Valid(spec) != nil {
			continue
		}
		before := m.state.Instances[name]
		if i := m.instances[name]; i != nil {
			before = remembered(i)
			m.leave(i)
		}
		if before.Of != spec.UID {
			before = kept{Of: spec.UID}
		}
		m.joins++
		i := &instanceState{Instance: spec, joined: m.joins}
		i.running.ManualDrains = before.ByHand
		i.known = instance.Known{Record: push.RecordView{Remembered: before.Record}, Override: before.Alias}
		m.draining[name] = i
		m.do(instance.Join{Ref: i.ref(), Spec: spec, Remembered: before.Record, Override: before.Alias})
		m.tell(observe.Info("instance drains, from now on it gets only what is live", "instance", name), now)
	}
}

// leave lets go of an instance of the fleet.
func (m *membership) leave(i *instanceState) {
	m.do(instance.Leave{Ref: i.ref()})
	delete(m.instances, i.Name)
	if i.UID != "" {
		delete(m.state.Uploads, i.Name) // they went with the pod
	}
}

// updateDraining brings the workers of instances that drain up to date.
func (j *jobs) updateDraining(now time.Time) {
	for _, name := range slices.Sorted(maps.Keys(j.draining)) {
		i := j.draining[name]
		needs := j.needsOf(i)
		needs.Persisted, needs.Unserved, needs.Deferred, needs.Leftover, needs.Garbage, needs.Overdue = true, false, false, false, false, false
		if classify(needs, now) == workUpdate {
			j.beginUpdate(i)
		}
	}
}
