package core

import (
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

// membership is who belongs to the fleet, as far as that is known.
type membership struct {
	*world
	listed []fleet.Instance // in the file
	found  []fleet.Instance // among the pods
	joins  int              // counts connections
}

// takeFleet takes the fleet's file. The pusher connects anew to instances that changed.
func (m *membership) takeFleet(f fleet.Fleet, err error, now time.Time) {
	m.trouble("fleet", err, now)
	if err != nil {
		return
	}
	m.takePolicy(f.Rollout.Apply(rollout.DefaultPolicy()), now)
	m.listed, m.fleetName, m.view.Fleet = f.Instances, f.Name, f.Name
	m.followPods(f.Pods, now)
	m.gather(now)
}

// takePolicy takes what the fleet's file says of rollouts, where flags do not.
func (m *membership) takePolicy(p rollout.Policy, now time.Time) {
	if len(m.Waves) > 0 {
		p.Waves = m.Waves
	}
	if m.Soak != nil {
		p.Soak = *m.Soak
	}
	if len(m.instances) > 0 && !reflect.DeepEqual(p, m.policy) {
		m.tell(observe.Info("settings of the rollout changed"), now)
	}
	m.policy = p
}

// followPods looks for other pods from now on, if the fleet's file says so.
func (m *membership) followPods(pods *fleet.Pods, now time.Time) {
	if m.pods == pods || (m.pods != nil && pods != nil && *m.pods == *pods) {
		return
	}
	m.pods, m.podsRead = pods, false
	if pods == nil {
		m.found = nil
		m.trouble("pods", nil, now)
		m.trouble(report.AboutCredentials, nil, now)
	}
	m.begin(WatchPods{pods})
}

// takePods takes which pods are instances. Those that were known stay where nothing
// new is known.
func (m *membership) takePods(of fleet.Pods, found []fleet.Instance, err error, now time.Time) {
	if m.pods == nil || *m.pods != of {
		return // others are looked for by now
	}
	m.trouble("pods", err, now)
	if err != nil && found == nil {
		return
	}
	m.found, m.podsRead = found, true
	m.gather(now)
}

// gather meets the instances that are new to the fleet, and lets go of those that
// are in it no more. Those among pods that are looked for and not read yet are not
// known to have left.
func (m *membership) gather(now time.Time) {
	var members []fleet.Instance
	named, drain := map[string]bool{}, map[string]fleet.Instance{}
	for _, spec := range slices.Concat(m.listed, m.found) {
		switch {
		case spec.Draining:
			drain[spec.Name] = spec
		case !named[spec.Name]: // the file comes first
			named[spec.Name] = true
			members = append(members, spec)
		}
	}
	maps.DeleteFunc(drain, func(name string, _ fleet.Instance) bool { return named[name] })
	m.letGo(drain, now)
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
			m.tell(observe.Info("instance left the fleet", "instance", name), now)
		}
	}
}

// renew has an instance asked with other credentials from now on. Work that is under way goes on,
// with them.
func (m *membership) renew(i *instanceState, spec fleet.Instance, now time.Time) {
	if err := instance.Valid(spec); err != nil {
		m.trouble("fleet", err, now)
		return
	}
	i.Instance = spec
	m.do(instance.Renew{Ref: i.ref(), Spec: spec})
	m.tell(observe.Info("credentials of instance renewed", "instance", spec.Name), now)
}

// join begins to ask an instance what it runs.
func (m *membership) join(spec fleet.Instance, now time.Time) {
	if err := instance.Valid(spec); err != nil {
		m.trouble("fleet", err, now)
		return
	}
	m.joins++
	i := &instanceState{Instance: spec, joined: m.joins}
	old := m.instances[spec.Name]
	same := old != nil && old.UID == spec.UID
	var before kept
	switch {
	case old == nil:
		before = m.state.Instances[spec.Name]
		m.tell(observe.Info("instance joined the fleet", "instance", spec.Name, "url", spec.URL), now)
	case same:
		m.change(func(s rollout.State) rollout.State { return s.Forgive(spec.Name) })
		i.busy = old.busy // its job ends as it began
		before, i.known = remembered(old), old.known
		i.running.Disk = old.running.Disk
	default:
		before = remembered(old)
		m.tell(observe.Info("instance was replaced by another of its name", "instance", spec.Name, "url", spec.URL), now)
	}
	if before.Of != spec.UID {
		before = kept{Of: spec.UID}
		m.change(func(s rollout.State) rollout.State { return s.Forget(spec.Name) })
		delete(m.state.Uploads, spec.Name)
		delete(m.reloads, spec.Name)
		if p := m.proposed; p != nil {
			delete(p.reloads, spec.Name)
		}
		m.dirty = true
	}
	i.running.ManualDrains, i.repairs, i.conflict = before.ByHand, before.Repairs, before.Conflict
	if !same {
		i.known = instance.Known{Record: push.RecordView{Remembered: before.Record}, Override: before.Alias}
	}
	m.instances[spec.Name] = i
	m.do(instance.Join{Ref: i.ref(), Spec: spec, Remembered: before.Record, Override: before.Alias})
}

// sameBut reports whether nothing has changed of an instance but what it is asked
// with.
func (i *instanceState) sameBut(spec fleet.Instance) bool {
	spec.Username, spec.Password, spec.TLS = i.Username, i.Password, i.TLS
	return i.Instance == spec
}
