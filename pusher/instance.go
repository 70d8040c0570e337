package pusher

import (
	"slices"
	"time"

	"github.com/hapsnap/hapsnap/pusher/dataplane"
	"github.com/hapsnap/hapsnap/pusher/fleet"
	"github.com/hapsnap/hapsnap/pusher/instance"
	"github.com/hapsnap/hapsnap/pusher/observe"
	"github.com/hapsnap/hapsnap/pusher/preflight"
	"github.com/hapsnap/hapsnap/pusher/push"
	"github.com/hapsnap/hapsnap/pusher/rollout"
	"github.com/hapsnap/hapsnap/snapshots"
	"github.com/hapsnap/hapsnap/snapshots/bind"
)

// instanceState is what the engine knows of one instance. It is a value: what it takes to reach
// the instance is in package instance. Only the engine's goroutine touches it.
//
// What the rollout has to remember of an instance for longer than the worker lives is in
// [rollout.State]: what was pushed to it last, and what a rollout has changed of the fleet. That
// is saved before a push begins, and this is found out anew.
type instanceState struct {
	fleet.Instance
	kept
	joined int            // counts the connections under its name
	known  instance.Known // of its haproxy.cfg and its worker, as of the last event

	asked   bool // has answered, or failed to, at least once
	info    dataplane.RuntimeInfo
	named   named
	told    time.Time // when that was asked for
	started time.Time // when its worker began, by this machine's clock
	died    time.Time // when it was last seen that its worker was replaced by nobody known
	err     error     // why it is out of reach, nil if it is not
	since   time.Time

	// matters are the snapshots that it should run, or may, by precedence.
	matters []snapshots.ID

	// busy is the kind of job under way, "" for none; ended is when the last one
	// ended: what was asked before may be out of date.
	busy  work
	ended time.Time

	checked  bool                // since it came into reach
	findings []preflight.Finding // what is wrong with how it is set up

	samples  samples // of its statistics
	sampling bool
	sampled  time.Time

	claimed     claim // what its disk is known to say of who leads it
	claimAfter  time.Time
	claimFailed bool // which is the job error
	toldLed     string
	toldForeign string

	running      push.Running // what its worker is known to have
	compared     comparison
	served       comparison    // of what is on disk
	garbage      []push.Stored // files to be removed
	garbageSince time.Time     // there was none before
	collected    time.Time     // when files were last begun to be removed
	collectAfter time.Time     // not before
	reviewed     review        // the last one of its files
	persisted    time.Time
	persistTook  time.Duration
	tidied       time.Time
	lastWork     work      // the last that ended
	inspectAfter time.Time // the next inspection
	inspections  int       // how many there were
	needsReload  string    // the digest of a snapshot that its worker could not be changed to
	jobError     string
	jobErrorAt   time.Time
	jobFailures  int
	jobNotBefore time.Time
}

// The one more kind of work, which the rollout begins.
const workPush work = "push"

// snapshot returns the snapshot that the worker names, zero for none. Of several
// revisions with the same content it is the one that matters to the engine: what
// was changed and changed back need not be pushed.
func (i *instanceState) snapshot() snapshots.ID {
	if i.named.node != i.info.Node {
		id, _, err := bind.ParseNode(i.info.Node)
		i.named = named{i.info.Node, id, err == nil}
	}
	if !i.named.known {
		return snapshots.ID{}
	}
	named := i.named.id
	for _, id := range i.matters {
		if id.Short == named.Short {
			return id
		}
	}
	return named
}

// named remembers what the name of a node says: it is asked for many times in each turn.
type named struct {
	node  string
	id    snapshots.ID
	known bool // it names a snapshot
}

func (i *instanceState) reachable() bool { return i.asked && i.err == nil }

// comparison remembers how two lists of servers compared, for there may be many
// thousands in each, and they rarely change.
type comparison struct {
	have, want *bind.Server // the first of each
	same       bool
}

// hasServers reports whether the worker is known to have these servers, or to serve them
// until slots get their addresses.
func (i *instanceState) hasServers(want []bind.Server) bool {
	have := i.running.Servers
	if have == nil || i.running.Info.PID != i.info.PID || len(have) != len(want) {
		return false
	}
	if len(have) == 0 {
		return true
	}
	if c := i.compared; c.have != &have[0] || c.want != &want[0] {
		i.compared = comparison{&have[0], &want[0], i.running.Serves(want)}
	}
	return i.compared.same
}

// leavesUnserved reports whether the file on the instance's disk leaves backends without
// servers that are wanted, where it is known what the worker has.
func (i *instanceState) leavesUnserved(want []bind.Server) bool {
	disk := i.running.Written
	if i.running.Servers == nil || i.running.Info.PID != i.info.PID || len(want) == 0 {
		return false
	}
	if len(disk) == 0 {
		return push.Unserved(disk, want)
	}
	if c := i.served; c.have != &disk[0] || c.want != &want[0] {
		i.served = comparison{&disk[0], &want[0], !push.Unserved(disk, want)}
	}
	return !i.served.same
}

// seen is the instance as the rollout sees it.
func (i *instanceState) seen(stale bool) rollout.Seen {
	return rollout.Seen{
		Name: i.Name, Zone: i.Zone, Reachable: i.reachable(), Running: i.snapshot(), PID: i.info.PID, Started: i.started,
		Busy: i.busy != "" && i.busy != workPush, Stale: stale, Foreign: i.foreign() != "", Sample: i.samples.last(i.started), Died: i.died,
	}
}

// ref names the instance in effects and events.
func (i *instanceState) ref() instance.Ref {
	return instance.Ref{Name: i.Name, UID: i.UID, Joined: i.joined}
}

// takeKnown takes what is known with an event, unless a later one came before it.
func (i *instanceState) takeKnown(k instance.Known) {
	if k.Number > i.known.Number {
		i.known = k
	}
}

// override returns what its worker runs, where it was changed without a reload, the zero value
// where that was another worker.
func (i *instanceState) override() push.Override {
	if i.info.PID != 0 && i.info.Loaded == "" {
		return push.Override{}
	}
	return i.known.Override
}

// foreign says why its worker was started from another configuration than what was written
// for it, "" if it was not.
func (i *instanceState) foreign() string { return i.known.Record.Foreign(i.info) }

// ledByOther reports whether another pusher leads it.
func (i *instanceState) ledByOther() bool { return i.known.Record.LedByOther() }

// takeProbe takes what the instance answered when it was asked at a time.
func (i *instanceState) takeProbe(info dataplane.RuntimeInfo, err error, asked, now time.Time) {
	if i.busy == workPush || asked.Before(i.ended) {
		return // the push knows better
	}
	if (i.err == nil) != (err == nil) || !i.asked {
		i.since = now
	}
	i.asked, i.err = true, err
	if err != nil {
		return
	}
	if (observation{info, asked}).ofAnother(i.observed()) && i.info.PID != 0 && i.busy == "" {
		i.died = now
	}
	i.takeInfo(info, asked)
}

// takeInfo takes what the worker said of itself. If it is another one, nothing is
// known of it.
func (i *instanceState) takeInfo(info dataplane.RuntimeInfo, asked time.Time) {
	if now := (observation{info, asked}); now.ofAnother(i.observed()) {
		i.running, i.started, i.inspectAfter, i.needsReload = i.running.Another(), now.started(), asked, ""
	}
	i.info, i.told = info, asked
}

// observed returns what the worker said last.
func (i *instanceState) observed() observation { return observation{i.info, i.told} }

// begin marks the instance as busy.
func (i *instanceState) begin(w work) { i.busy = w }

// end notes how a job ended, apart from a push, whose end the rollout notes.
func (i *instanceState) end(err error, retry time.Duration, now time.Time) {
	i.lastWork, i.busy, i.ended = i.busy, "", now
	if err == nil {
		i.jobError, i.jobErrorAt, i.jobFailures, i.jobNotBefore = "", time.Time{}, 0, time.Time{}
		return
	}
	i.jobFailures++
	i.jobError, i.jobErrorAt = observe.Brief(err), now
	i.jobNotBefore = now.Add(min(retry<<min(i.jobFailures-1, 10), time.Minute))
}

// forgetJobs forgets what failed with a worker that was replaced since, apart from a
// claim, which is of the disk.
func (i *instanceState) forgetJobs() {
	if !i.claimFailed {
		i.jobError, i.jobErrorAt = "", time.Time{}
	}
	i.jobFailures, i.jobNotBefore = 0, time.Time{}
}

// observation is what a worker said of itself when it was asked at a time.
type observation struct {
	dataplane.RuntimeInfo
	asked time.Time
}

// started returns when the worker began, or later. See [push.Process.Started].
func (h observation) started() time.Time { return h.worker().Started() }

func (h observation) worker() push.Process { return push.ProcessOf(h.RuntimeInfo, h.asked) }

// ofAnother reports whether this was said by another worker than the last that was heard.
func (h observation) ofAnother(last observation) bool { return h.worker().OtherThan(last.worker()) }

// membership is who belongs to the fleet, as far as that is known.
type membership struct {
	fleetName string           // in the file
	listed    []fleet.Instance // in the file
	found     []fleet.Instance // among the pods
	pods      *fleet.Pods      // which pods are looked for, nil for none
	// podsRead is set once the pods were read that are looked for.
	podsRead bool
	joins    int // counts connections
}

// followPods looks for other pods from now on, if the fleet's file says so.
func (e *engine) followPods(pods *fleet.Pods, now time.Time) {
	if e.pods == pods || (e.pods != nil && pods != nil && *e.pods == *pods) {
		return
	}
	e.pods, e.podsRead = pods, false
	if pods == nil {
		e.found = nil
		e.trouble("pods", nil, now)
		e.trouble(observe.AboutCredentials, nil, now)
	}
	e.begin(WatchPods{pods})
}

// takePods takes which pods are instances. Those that were known stay where nothing
// new is known.
func (e *engine) takePods(of fleet.Pods, found []fleet.Instance, err error, now time.Time) {
	if e.pods == nil || *e.pods != of {
		return // others are looked for by now
	}
	e.trouble("pods", err, now)
	if err != nil && found == nil {
		return
	}
	e.found, e.podsRead = found, true
	e.gather(now)
}

// gather meets the instances that are new to the fleet, and lets go of those that
// are in it no more. Those among pods that are looked for and not read yet are not
// known to have left.
func (e *engine) gather(now time.Time) {
	members := map[string]bool{}
	for _, spec := range slices.Concat(e.listed, e.found) {
		if members[spec.Name] {
			continue // the file comes first
		}
		members[spec.Name] = true
		switch old := e.instances[spec.Name]; {
		case old == nil || !old.sameBut(spec):
			e.join(spec, now)
		case old.Instance != spec:
			e.renew(old, spec, now)
		}
	}
	for name, i := range e.instances {
		if !members[name] {
			e.do(instance.Leave{Ref: i.ref()})
			delete(e.instances, name)
			if i.UID != "" {
				delete(e.state.Uploads, name) // they went with the pod
			}
			e.tell(observe.Info("instance left the fleet", "instance", name), now)
		}
	}
}

// known reports whether it is known who belongs to the fleet. Without one pod there
// is nobody to decide for: a rollout would find nothing in its way.
func (e *engine) known() bool {
	return e.pods == nil || (e.podsRead && len(e.instances) > 0)
}

// sameBut reports whether nothing has changed of an instance but what it is asked
// with.
func (i *instanceState) sameBut(spec fleet.Instance) bool {
	spec.Username, spec.Password, spec.TLS = i.Username, i.Password, i.TLS
	return i.Instance == spec
}

// renew has an instance asked with other credentials from now on. Work that is under way goes on,
// with them.
func (e *engine) renew(i *instanceState, spec fleet.Instance, now time.Time) {
	if err := instance.Valid(spec); err != nil {
		e.trouble("fleet", err, now)
		return
	}
	i.Instance = spec
	e.do(instance.Renew{Ref: i.ref(), Spec: spec})
	e.tell(observe.Info("credentials of instance renewed", "instance", spec.Name), now)
}

// join begins to ask an instance what it runs.
func (e *engine) join(spec fleet.Instance, now time.Time) {
	if err := instance.Valid(spec); err != nil {
		e.trouble("fleet", err, now)
		return
	}
	e.joins++
	i := &instanceState{Instance: spec, joined: e.joins}
	old := e.instances[spec.Name]
	same := old != nil && old.UID == spec.UID
	switch {
	case old == nil:
		i.kept = e.state.Instances[spec.Name]
		e.tell(observe.Info("instance joined the fleet", "instance", spec.Name, "url", spec.URL), now)
	case same:
		e.change(func(s rollout.State) rollout.State { return s.Forgive(spec.Name) })
		i.busy = old.busy // its job ends as it began
		i.kept, i.known = old.kept, old.known
		i.ByHand, i.running.Disk = old.running.ManualDrains, old.running.Disk
	default:
		i.kept = old.kept
		e.tell(observe.Info("instance was replaced by another of its name", "instance", spec.Name, "url", spec.URL), now)
	}
	if i.Of != spec.UID {
		i.kept = kept{Of: spec.UID}
		e.change(func(s rollout.State) rollout.State { return s.Forget(spec.Name) })
		delete(e.state.Uploads, spec.Name)
		delete(e.reloads, spec.Name)
		if p := e.saves.proposed; p != nil {
			delete(p.reloads, spec.Name)
		}
		e.dirty = true
	}
	i.running.ManualDrains = i.ByHand
	if !same {
		i.known = instance.Known{Record: push.RecordView{Remembered: i.Record}, Override: i.Alias}
	}
	e.instances[spec.Name] = i
	e.do(instance.Join{Ref: i.ref(), Spec: spec, Remembered: i.Record, Override: i.Alias})
}

// checkOnce begins to check an instance that answers for the first time, or again, for what
// would keep a push from working. Nothing waits for that.
func (e *engine) checkOnce(i *instanceState) {
	switch {
	case !i.reachable():
		i.checked = false
	case !i.checked:
		i.checked = true
		e.do(instance.Check{Ref: i.ref()})
	}
}
