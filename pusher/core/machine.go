// Package core decides what the pusher does. A [Machine] knows everything; [Machine.Step] takes
// events, which are values, and returns effects, which are values too. It reads no clock, draws no
// lots, starts nothing and waits for nothing. It has no store, no client, no logger and no context:
// package pusher has, and carries out the effects. A test holds that.
//
// Each step has five parts:
//
//   - observe: take what the store and its channel say, the live endpoints and certificates, and
//     what the worker of each instance says it runs;
//   - want: decide which snapshot should run (channel.Want);
//   - step: decide which instance gets which snapshot now (package rollout);
//   - save: have the state saved before any push of the step begins (saving.go);
//   - act: begin pushes, and changes of servers and certificates at run time. These changes
//     bypass the rollout and wait for no save (jobs.go).
//
// What people should know is a value as well: facts, and a view (reporting.go). Package observe
// makes the status, metrics, Events and log lines of them.
//
// The machine never pushes because something was not found. If the store is gone, empty or corrupt,
// a pin is missing, or a directory cannot be read, the instances keep what they run, and the log and
// the status say why.
package core

import (
	"errors"
	"net/netip"
	"slices"
	"time"

	"github.com/hapsnap/hapsnap/pusher/binding"
	"github.com/hapsnap/hapsnap/pusher/observe"
	"github.com/hapsnap/hapsnap/pusher/report"
	"github.com/hapsnap/hapsnap/pusher/rollout"
	"github.com/hapsnap/hapsnap/snapshots"
	"github.com/hapsnap/hapsnap/snapshots/channel"
)

// Machine is what the pusher knows, and how it decides. It is changed by [Machine.Step] alone. One
// goroutine uses it.
//
// Step changes the machine in place and returns no other one: what is known of a fleet with
// thousands of backends is many megabytes, most of which no event touches, and there are several
// steps a second. A machine that was made from the same state, and has heard the same events at the
// same times, comes to the same effects all the same; see package pusher for the log by which that is
// tested.
//
// Its parts each have what they alone write; what is known to all of them is the world.
type Machine struct {
	*world
	membership *membership
	leadership *leadership
	following  *liveData
	supply     *supply
	rolling    *rolling
	saving     *saving
	jobs       *jobs
	uploads    *uploads
	sampling   *sampling
	rejecting  *rejecting
	reporting  *reporting
}

// Settings are what a machine goes by that no event changes.
type Settings struct {
	// Source is where endpoints come from.
	Source binding.Source `json:"source"`
	// StateElsewhere is set where the state is not in a file of this machine: it is saved less often.
	StateElsewhere bool `json:"stateElsewhere,omitempty"`
	// Cache names the folder that keeps the snapshots in use, "" for none.
	Cache string `json:"cache,omitempty"`
	// Identity is set where there is something to open sealed certificates with.
	Identity bool `json:"identity,omitempty"`
	// RefuseEndpoints are the networks that no endpoint may be in, AllowEndpoints those that are used
	// all the same. RefuseInManifests has them refused in manifests, too.
	RefuseEndpoints   []netip.Prefix `json:"refuseEndpoints,omitempty"`
	AllowEndpoints    []netip.Prefix `json:"allowEndpoints,omitempty"`
	RefuseInManifests bool           `json:"refuseInManifests,omitempty"`
	// Waves and Soak, where set, come before what the fleet's file says.
	Waves []rollout.Size `json:"waves,omitempty"`
	Soak  *time.Duration `json:"soak,omitempty"`
	// Page is where other pushers find the page of this one, "" for nowhere.
	Page string `json:"page,omitempty"`
	// See the options of package pusher for these.
	PollInterval    time.Duration `json:"pollInterval"`
	DrainTime       time.Duration `json:"drainTime"`
	PersistInterval time.Duration `json:"persistInterval"`
	InspectInterval time.Duration `json:"inspectInterval"`
	CollectAfter    time.Duration `json:"collectAfter"`
}

// refusals returns what refuses endpoints.
func (s Settings) refusals() binding.Refusals {
	if s.Source == binding.FromCluster || s.RefuseInManifests {
		return binding.NewRefusals(s.RefuseEndpoints, s.AllowEndpoints)
	}
	return binding.NewRefusals(nil, s.AllowEndpoints)
}

// New returns a machine that begins with a state. The fallback is the certificate that is served
// where no other fits.
func New(settings Settings, s State, fallback []byte, now time.Time) *Machine {
	if s.Uploads == nil {
		s.Uploads = map[string][]Upload{}
	}
	bindings := binding.New(s.Slots, settings.Source, settings.refusals())
	w := &world{
		Settings: settings, started: now, policy: rollout.DefaultPolicy(), instances: map[string]*instanceState{}, draining: map[string]*instanceState{},
		bindings: bindings, live: binding.NewSources(bindings, settings.refusals(), s.Kept, fallback, now), snapshotCache: binding.NewCache(settings.Cache),
		state: s, changes: s.Status.Changes, reloads: map[string]int{}, troubles: observe.Troubles{},
	}
	w.state.Rollout = s.Rollout.Resume(s.Status.Updated, now)
	m := &Machine{world: w, sampling: &sampling{world: w}, rejecting: &rejecting{world: w}, membership: &membership{world: w}}
	m.reporting = &reporting{world: w, emptiness: newEmptiness(s.Status.Backends)}
	m.following = &liveData{world: w}
	m.supply = &supply{world: w, following: m.following}
	m.uploads = &uploads{world: w}
	m.saving = &saving{world: w, reporting: m.reporting}
	m.rolling = &rolling{world: w, saving: m.saving, uploads: m.uploads}
	m.leadership = &leadership{world: w, saving: m.saving}
	m.jobs = &jobs{world: w, saving: m.saving, leadership: m.leadership, uploads: m.uploads}
	return m
}

// Lead has the pusher lead in a term, 0 where there are none, before any instance has joined. What is
// written to instances says so.
func (m *Machine) Lead(number int64) { m.term = term{number, true} }

// Step takes events, in their order, and a turn. It returns what is to be done, in the order in which
// it was decided. It reads no clock and waits for nothing.
func (m *Machine) Step(now time.Time, events ...Event) []Effect {
	m.Take(now, events...)
	m.turn(now)
	out := m.effects
	m.effects = nil
	return out
}

// Take takes events without a turn, when the pusher is about to end.
func (m *Machine) Take(now time.Time, events ...Event) {
	for _, ev := range events {
		ev.apply(m, now)
	}
}

// Told returns what has happened since it was asked for last.
func (m *Machine) Told() []observe.Told {
	out := m.facts
	m.facts = nil
	return out
}

// Shown returns what people are to see of the last step.
func (m *Machine) Shown() (observe.View, report.Status) {
	return m.reporting.shown, m.reporting.reported
}

// Due returns when a step is due though nothing happens, the zero time for never.
func (m *Machine) Due() time.Time {
	_, due := m.bindings.Table()
	return due
}

// LastSave returns the effect that saves what is known in the end, when nothing else is under way.
func (m *Machine) LastSave(now time.Time) SaveState { return m.saving.lastSave(now) }

// RecordNodes has each node handed over that is bound from now on. A machine decides by them, and
// they are made of secrets: a log of events has nodes instead, from which [Machine.Replay] takes them.
func (m *Machine) RecordNodes(to func(binding.RecordedNode)) { m.bindings.RecordNodes(to) }

// Replay has the machine bind nothing from now on, and take its nodes from a log.
func (m *Machine) Replay() *binding.Replay { return m.bindings.Replay() }

// turn is the whole of the pusher: it observes, decides what should run, takes
// the next step of the rollout, and collects the effects that the runner is to start: its
// pushes once the state of the step was saved, see saving.go.
func (m *Machine) turn(now time.Time) {
	m.sorted = m.names()
	defer func() { m.sorted = nil }()
	m.view.Runs = runs(m.state.Rollout)
	m.following.refuseOwn(now)
	m.decision = decide(m.view, m.state.Rollout.Failed, now)
	m.followOverride(now)
	m.tellInstances()
	m.supply.readSnapshots(now)
	m.supply.openSnapshots(now)
	m.supply.assignSlots(now)
	m.bindings.Expire(now)
	m.leadership.beginClaims(now)
	ready := m.ready(now)
	m.jobs.beginApproved(ready, now)
	if ready {
		m.rolling.takeStep(now)
		m.uploads.reviewUploads(now)
		m.jobs.beginWork(now)
		m.sampling.beginSampling(now)
		m.rejecting.reject(now)
		m.reporting.troubleWithSecrets(now)
	}
	if m.mayFollow(now) {
		m.jobs.updateDraining(now)
	}
	m.live.SettleSecrets(now)
	m.reporting.troubleWithReach(now)
	m.reporting.sayEmpty(now)
	m.following.troubleWithLive(now)
	m.reporting.troubleWithNeeds(now)
	m.reporting.troubleWithSignatures(now)
	m.reporting.look(now)
	m.saving.keepState(now)
}

// takeView takes what the store said.
func (m *Machine) takeView(view channel.View, err error, now time.Time) {
	m.trouble("store", err, now)
	m.rewound = errors.Is(err, channel.ErrRewound)
	if err != nil {
		return
	}
	if view.Seen != m.state.Seen {
		m.state.Seen, m.dirty = view.Seen, true
	}
	view.Fleet = m.fleetName
	m.view, m.viewRead = view, true
	m.following.confirmLosses(now)
}

// tellInstances tells each instance which snapshots matter.
func (m *Machine) tellInstances() {
	matters := []snapshots.ID{m.decision.ID}
	if r := m.state.Rollout.Rollout; r != nil {
		matters = append(matters, r.Target)
	}
	matters = append(matters, m.state.Rollout.Good)
	matters = slices.DeleteFunc(matters, snapshots.ID.IsZero)
	for i := range m.served() {
		i.matters = matters
	}
}

// mayFollow reports whether instances may get what is live: it was read, and this pusher leads.
func (m *Machine) mayFollow(now time.Time) bool {
	return m.leadership.leadsFleet(now) && m.live.Ready() && !m.following.blindStart(now)
}

// ready reports whether enough is known to decide: the store, the live objects
// and every instance were read or asked at least once. Before, what is missing
// would be taken for what is not there.
func (m *Machine) ready(now time.Time) bool {
	if !m.mayFollow(now) || !m.known() || m.unknown(m.state.Rollout.Good) || m.state.Rollout.Rollout != nil && m.unknown(m.state.Rollout.Rollout.Target) {
		return false
	}
	if now.Sub(m.started) > firstAnswers {
		return true
	}
	for _, i := range m.instances {
		if !i.asked || m.unclaimed(i) {
			return false
		}
	}
	return true
}
