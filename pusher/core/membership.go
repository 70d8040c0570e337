package core

import (
	"errors"
	"fmt"
	"iter"
	"maps"
	"reflect"
	"slices"
	"strings"
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
	// Other pods are looked for from now on, if the fleet's file says so.
	if m.pods != f.Pods && (m.pods == nil || f.Pods == nil || *m.pods != *f.Pods) {
		m.pods, m.podsRead = f.Pods, false
		if f.Pods == nil {
			m.found = nil
			m.trouble("pods", nil, now)
			m.trouble(report.AboutCredentials, nil, now)
		}
		m.begin(WatchPods{f.Pods})
	}
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
	// Those that drain and are gone, or whose name another one has, leave before others join.
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
	i.running.ManualDrains, i.repairs, i.conflict = before.ManualDrains, before.Repairs, before.Conflict
	if !same {
		i.known = instance.Known{Record: push.RecordView{Remembered: before.Record}, Override: before.Override}
	}
	m.instances[spec.Name], m.sorted = i, nil
	m.do(instance.Join{Ref: i.ref(), Spec: spec, Remembered: before.Record, Override: before.Override})
}

// sameBut reports whether nothing has changed of an instance but what it is asked
// with.
func (i *instanceState) sameBut(spec fleet.Instance) bool {
	spec.Username, spec.Password, spec.TLS = i.Username, i.Password, i.TLS
	return i.Instance == spec
}

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
		i.running.ManualDrains = before.ManualDrains
		i.known = instance.Known{Record: push.RecordView{Remembered: before.Record}, Override: before.Override}
		m.draining[name] = i
		m.do(instance.Join{Ref: i.ref(), Spec: spec, Remembered: before.Record, Override: before.Override})
		m.tell(observe.Info("instance drains, from now on it gets only what is live", "instance", name), now)
	}
}

// leave lets go of an instance of the fleet.
func (m *membership) leave(i *instanceState) {
	m.do(instance.Leave{Ref: i.ref()})
	delete(m.instances, i.Name)
	m.sorted = nil
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

const (
	// maxRaises bounds how often the term is raised above that of others: whoever keeps
	// writing higher ones has a state of its own, and is not a former leader.
	maxRaises = 3
)

// leadership sees to it that no two pushers lead the same instances.
type leadership struct {
	*world
	saving *saving
	raised int // how often the term was
}

// outranked sees to an instance on which a later term was found. Either another pusher
// leads by now; or the state, which this one still has, was made anew after that term.
// Then the term is raised. It returns false where that is not tried.
func (l *leadership) outranked(i *instanceState, err error) bool {
	by, ok := errors.AsType[push.OutrankedError](err)
	if !ok || by.By <= l.term.number || l.raised >= maxRaises {
		return false
	}
	if s := l.saving; (s.raise == nil || by.By > s.raise.Above) && (s.raising == nil || by.By > s.raising.Above) {
		s.raise = &RaiseTerm{by.By, i.ref()}
	}
	return true
}

// claimRetry is the wait after an instance could not be claimed.
const claimRetry = 10 * time.Second

// beginClaims begins to look at the instances that are to be looked at. Where the term and
// the mark of this pusher are missing on an instance's disk, they are written there. Pushes
// do so as well; but where nothing is to be pushed, a former leader that was paused in the
// middle of a push could go on, and another pusher would find nobody.
func (l *leadership) beginClaims(now time.Time) {
	for i := range l.served() {
		if l.term.fenced && i.reachable() && i.busy == "" && !now.Before(i.claimAfter) && !l.claimedAndJudged(i) {
			i.begin(workClaim)
			l.do(instance.Claim{Ref: i.ref(), Term: l.term.number})
		}
	}
}

// notLed sees to an instance that another pusher turned out to lead: it is looked at again
// now and then, and so are all others at once, for that one may have taken them too.
func (l *leadership) notLed(i *instanceState, err error) {
	if _, led := errors.AsType[push.LedByOtherError](err); !led {
		return
	}
	was := i.claimed.made
	i.claimed = claim{}
	for _, other := range l.instances {
		if was && other != i && !other.ledByOther() {
			other.claimed, other.claimAfter = claim{}, time.Time{}
		}
	}
}

// leadsFleet reports whether this pusher may decide for the fleet. It may not while another
// one leads an instance and none is its own: then it is the second one, and whatever it
// wrote to the others would be the beginning of a fight. Where some are its own it leaves
// those alone that are not.
func (l *leadership) leadsFleet(now time.Time) bool {
	var led []string
	by, own := "", false
	for _, name := range l.names() {
		i := l.instances[name]
		if i.ledByOther() {
			led, by = append(led, name), i.known.Record.LeaderText()
		}
		own = own || i.known.Record.Claimed
		l.tellRecord(i, now)
	}
	if len(led) == 0 || own {
		l.trouble("pusher", nil, now)
		return true
	}
	l.trouble("pusher", fmt.Errorf("another pusher leads %s: %s; nothing is written to any instance. If that one is gone for good, start this one with --take-over",
		strings.Join(led, ", "), by), now)
	return false
}

// tellRecord tells of an instance that another pusher leads, and of a worker that was
// started from another configuration.
func (l *leadership) tellRecord(i *instanceState, now time.Time) {
	led := i.ledByOther()
	if who := i.known.Record.LeaderText(); led && i.toldLed != who {
		i.toldLed = who
		l.tell(observe.Event{
			Bad: true, Log: "instance is led by another pusher, nothing is written to it", Keys: []any{"by", who}, Reason: "LedByOther",
			Text: i.Name + ": another pusher leads it: " + who, Instance: i.Name,
		}, now)
	}
	if !led && i.toldLed != "" {
		i.toldLed = ""
		l.tell(observe.Info("instance is led by this pusher again", "instance", i.Name), now)
	}
	if why := i.foreign(); why != i.toldForeign {
		if i.toldForeign = why; why != "" {
			l.tell(observe.Event{
				Bad: true, Log: "worker was started from another configuration, it is to be reloaded", Keys: []any{"reason", why, "pid", i.info.PID},
				Reason: "ForeignWorker", Text: i.Name + ": " + push.ErrForeign.Error() + ": " + why, Instance: i.Name,
			}, now)
		}
	}
}

func (r Raised) apply(m *Machine, now time.Time) {
	m.saving.underWay, m.saving.raising = false, nil
	if r.Err != nil {
		m.trouble("state", r.Err, now)
		if r.Taken {
			m.begin(EndTerm{fmt.Errorf("instance %s is of term %d: %w", r.Of.Name, r.Above, r.Err)})
		}
		return
	}
	m.tell(observe.Warn("term raised above one that was met", "instance", r.Of.Name, "met", r.Above, "term", r.Term), now)
	m.leadership.raised++
	m.term.number = r.Term
	for i := range m.served() {
		i.claimAfter = now // of all those that it was met on
	}
	m.dirty = true
}
