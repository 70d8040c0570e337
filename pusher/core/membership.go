package core

import (
	"iter"
	"maps"
	"reflect"
	"slices"
	"time"

	"github.com/hapsnap/hapsnap/pusher/fleet"
	"github.com/hapsnap/hapsnap/pusher/instance"
	"github.com/hapsnap/hapsnap/pusher/observe"
	"github.com/hapsnap/hapsnap/pusher/push"
	"github.com/hapsnap/hapsnap/pusher/report"
	"github.com/hapsnap/hapsnap/pusher/rollout"
)

// membership decides which instances are in the fleet.
type membership struct {
	*world
	listed []fleet.Instance // in the fleet's file
	found  []fleet.Instance // among the pods
	joins  int              // how many connections were made so far
}

// takeFleet takes the fleet's file. The pusher connects anew to instances that changed. With an error and no fleet, the
// known one stays. With an error and a fleet, the error is about the credentials of some of its instances.
func (m *membership) takeFleet(f fleet.Fleet, err error, now time.Time) {
	m.trouble(report.AboutFleet, err, now)
	if err != nil && f.Name == "" {
		return
	}
	m.takePolicy(f.Rollout.Apply(rollout.DefaultPolicy()), now)
	m.listed, m.fleetName, m.view.Fleet = f.Instances, f.Name, f.Name
	// If the fleet's file now names other pods, look for those.
	if m.pods != f.Pods && (m.pods == nil || f.Pods == nil || *m.pods != *f.Pods) {
		m.pods, m.podsRead = f.Pods, false
		if f.Pods == nil {
			m.found = nil
			m.trouble(report.AboutPods, nil, now)
			m.trouble(report.AboutCredentials, nil, now)
		}
		m.begin(WatchPods{f.Pods})
	}
	m.gather(now)
}

// takePolicy takes the rollout policy of the fleet's file. Flags override it.
func (m *membership) takePolicy(p rollout.Policy, now time.Time) {
	if len(m.Waves) > 0 {
		p.Waves = m.Waves
	}
	if m.Soak != nil {
		p.Soak = *m.Soak
	}
	if len(m.instances) > 0 && !reflect.DeepEqual(p, m.policy) {
		m.record(observe.Info("settings of the rollout changed"), now)
	}
	m.policy = p
}

// takePods takes the list of pods that are instances. With an error and no list, the known pods
// stay.
func (m *membership) takePods(of fleet.Pods, found []fleet.Instance, err error, now time.Time) {
	if m.pods == nil || *m.pods != of {
		return // the fleet's file names other pods by now
	}
	m.trouble(report.AboutPods, err, now)
	if err != nil && found == nil {
		return
	}
	m.found, m.podsRead = found, true
	m.gather(now)
}

// gather lets new instances join the fleet, and removes those that are gone.
func (m *membership) gather(now time.Time) {
	var members []fleet.Instance
	named, drain := map[string]bool{}, map[string]fleet.Instance{}
	for _, spec := range slices.Concat(m.listed, m.found) {
		switch {
		case spec.Draining:
			drain[spec.Name] = spec
		case !named[spec.Name]: // an instance in the file takes precedence over a pod of its name
			named[spec.Name] = true
			members = append(members, spec)
		}
	}
	maps.DeleteFunc(drain, func(name string, _ fleet.Instance) bool { return named[name] })
	// Draining instances that are gone, or whose name another one has now, leave before others join.
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
		m.record(observe.Info("instance left the fleet", "instance", name), now)
	}
	m.drain(drain, now)
	for _, spec := range members {
		switch old := m.instances[spec.Name]; {
		case old == nil || !old.sameBut(spec):
			m.join(spec, now)
		case old.Instance != spec:
			m.renew(old, spec, now)
		}
	}
	for _, name := range m.names() {
		if !named[name] {
			m.leave(m.instances[name])
			m.record(observe.Info("instance left the fleet", "instance", name), now)
		}
	}
}

// renew begins to use other credentials for an instance. Work under way goes on with the new ones.
func (m *membership) renew(i *instanceState, spec fleet.Instance, now time.Time) {
	if err := instance.Valid(spec); err != nil {
		m.trouble(report.AboutFleet, err, now)
		return
	}
	i.Instance = spec
	m.do(instance.Renew{Ref: i.ref(), Spec: spec})
	m.record(observe.Info("credentials of instance renewed", "instance", spec.Name), now)
}

// join connects to an instance, and begins to probe it.
func (m *membership) join(spec fleet.Instance, now time.Time) {
	if err := instance.Valid(spec); err != nil {
		m.trouble(report.AboutFleet, err, now)
		return
	}
	m.joins++
	i := &instanceState{Instance: spec, joined: m.joins}
	old := m.instances[spec.Name]
	same := old != nil && old.UID == spec.UID
	var before savedInstance
	switch {
	case old == nil:
		before = m.state.Instances[spec.Name]
		m.record(observe.Info("instance joined the fleet", "instance", spec.Name, "url", spec.URL), now)
	case same:
		m.change(func(s rollout.State) rollout.State { return s.Forgive(spec.Name) })
		i.busy, i.writing = old.busy, old.writing // its job goes on, and ends as usual
		before, i.known = remembered(old), old.known
		i.running.Disk = old.running.Disk
	default:
		before = remembered(old)
		m.record(observe.Info("instance was replaced by another of its name", "instance", spec.Name, "url", spec.URL), now)
	}
	if before.Of != spec.UID {
		before = savedInstance{Of: spec.UID}
		m.change(func(s rollout.State) rollout.State { return s.Forget(spec.Name) })
		delete(m.state.Uploads, spec.Name)
		delete(m.reloads, spec.Name)
		if p := m.proposed; p != nil {
			delete(p.reloads, spec.Name)
		}
		m.dirty = true
	}
	i.running.ManualDrains, i.repairs, i.conflict = before.ManualDrains, before.Repairs, before.Conflict
	if !same {
		i.known = instance.Known{Record: push.RecordView{Remembered: before.Record}, Override: before.Override}
	}
	m.instances[spec.Name], m.sorted = i, nil
	m.do(instance.Join{Ref: i.ref(), Spec: spec, Remembered: before.Record, Override: before.Override})
}

// sameBut reports whether nothing of an instance changed except its credentials.
func (i *instanceState) sameBut(spec fleet.Instance) bool {
	spec.Username, spec.Password, spec.TLS, spec.Unknown = i.Username, i.Password, i.TLS, i.Unknown
	return i.Instance == spec
}

// An instance whose pod terminates drains: its HAProxy serves the connections that it has until
// they end, which may take minutes, and the servers behind it come and go meanwhile. These are
// the rules:
//
//   - It is no longer in the fleet: there are no pushes and no repairs, no wave and no budget counts
//     it, nothing waits for it, and the health gate ignores it. For a rollout it has left.
//   - Work under way on it ends at once. A reload would start a worker that nobody has told to stop,
//     and the pod would be killed with its connections.
//   - Its worker gets endpoints, certificates and entries of maps at run time, like any other. If the
//     endpoints no longer fit into the slots that its worker loaded, only a reload would help, and
//     the worker stays as it is.
//   - It is gone when its pod is gone.

// served returns all instances whose workers get live data: those of the fleet, then the draining
// ones, each sorted by name.
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

// drain moves instances of the fleet that begin to drain to the draining ones. It also adds those
// that drained before this pusher began.
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
			before = savedInstance{Of: spec.UID}
		}
		m.joins++
		i := &instanceState{Instance: spec, joined: m.joins}
		i.running.ManualDrains = before.ManualDrains
		i.known = instance.Known{Record: push.RecordView{Remembered: before.Record}, Override: before.Override}
		m.draining[name] = i
		m.do(instance.Join{Ref: i.ref(), Spec: spec, Remembered: before.Record, Override: before.Override})
		m.record(observe.Info("instance drains, from now on it gets only what is live", "instance", name), now)
	}
}

// leave removes an instance from the fleet.
func (m *membership) leave(i *instanceState) {
	m.do(instance.Leave{Ref: i.ref()})
	delete(m.instances, i.Name)
	m.sorted = nil
	if i.UID != "" {
		delete(m.state.Uploads, i.Name) // the files are gone with the pod
	}
}
