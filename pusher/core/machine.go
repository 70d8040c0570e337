// Package core decides what the pusher does. A [Machine] knows everything; [Machine.Step] takes
// events, which are values, and returns effects, which are values too. It reads no clock, uses no
// randomness, starts nothing and waits for nothing. Stores, clients, loggers and contexts are in
// package pusher, which carries out the effects. TestStepIsPure checks that.
//
// A step takes its events (events.go), and then one turn ([Machine.turn]):
//
//   - decide which snapshot should run (channel.Want);
//   - supply: request missing snapshots and the decryption of sealed certificates, and give
//     endpoints their slots;
//   - claim instances: check who leads them, and write to their disks that this pusher does;
//   - begin the pushes of a step of the rollout whose state was saved meanwhile;
//   - take the next step of the rollout: which instance gets which snapshot now (package rollout);
//   - propose that step: request the save of its state, on which its pushes wait;
//   - begin other work on instances, such as changes of servers and certificates at run time. It
//     bypasses the rollout and waits for no save;
//   - record what people should see: facts and a view. Package observe makes the status, metrics,
//     Events and log lines of them.
//
// These parts take the turn:
//
//	part        file           concern
//	world       world.go       what all parts know, and what was decided
//	membership  membership.go  which instances are in the fleet, and which drain
//	leadership  leadership.go  no two pushers lead the same instance: claims and terms
//	liveData    livedata.go    endpoints and certificates
//	supply      supply.go      the snapshots in use, their certificates, and slots
//	rolling     rolling.go     steps of the rollout; compare.go has the backends that a snapshot changes
//	saving      saving.go      the state, and the pushes that wait for its save
//	jobs        jobs.go        work on instances; needs.go decides which, instance.go has what is known
//	uploads     uploads.go     the files on instances, and which of them nothing needs
//	sampling    sampling.go    the statistics of instances
//	rejecting   decide.go      notes failed snapshots in the channel
//	reporting   reporting.go   what people should see
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

// Machine holds what the pusher knows, and decides. One goroutine uses it.
//
// Step changes the machine in place. A fleet with thousands of backends takes many megabytes, of
// which an event touches little, and there are several steps a second. Two machines that start from
// the same state and take the same events at the same times return the same effects. Package pusher
// has the event log with which this is tested.
//
// All parts share the world: they read it, and write into it. Each part also has fields of its own.
type Machine struct {
	*world
	membership *membership
	leadership *leadership
	liveData   *liveData
	supply     *supply
	rolling    *rolling
	saving     *saving
	jobs       *jobs
	uploads    *uploads
	sampling   *sampling
	rejecting  *rejecting
	reporting  *reporting
}

// Settings are what the machine needs to know and what no event changes.
type Settings struct {
	// Source is where endpoints come from.
	Source binding.Source `json:"source"`
	// StateElsewhere is set if the state is not in a file on this host. It is saved less often then.
	StateElsewhere bool `json:"stateElsewhere,omitempty"`
	// Cache names the folder that keeps the snapshots in use, "" for none.
	Cache string `json:"cache,omitempty"`
	// Identity is set if there is a file of identities that open sealed certificates.
	Identity bool `json:"identity,omitempty"`
	// RefuseEndpoints are networks whose endpoints are refused. AllowEndpoints are exceptions.
	// RefuseInManifests applies both to manifests, too.
	RefuseEndpoints   []netip.Prefix `json:"refuseEndpoints,omitempty"`
	AllowEndpoints    []netip.Prefix `json:"allowEndpoints,omitempty"`
	RefuseInManifests bool           `json:"refuseInManifests,omitempty"`
	// Waves and Soak, if set, override the fleet's file.
	Waves []rollout.Size `json:"waves,omitempty"`
	Soak  *time.Duration `json:"soak,omitempty"`
	// Page is the address at which other pushers find the page of this one, "" if it has none.
	Page string `json:"page,omitempty"`
	// See the options of package pusher for these.
	PollInterval    time.Duration `json:"pollInterval"`
	DrainTime       time.Duration `json:"drainTime"`
	PersistInterval time.Duration `json:"persistInterval"`
	InspectInterval time.Duration `json:"inspectInterval"`
	CollectAfter    time.Duration `json:"collectAfter"`
}

// refusals returns the rules that refuse endpoints.
func (s Settings) refusals() binding.Refusals {
	if s.Source == binding.FromCluster || s.RefuseInManifests {
		return binding.NewRefusals(s.RefuseEndpoints, s.AllowEndpoints)
	}
	return binding.NewRefusals(nil, s.AllowEndpoints)
}

// New returns a machine that begins with a state. The fallback is the certificate that is served
// if no other fits.
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
	m.liveData = &liveData{world: w}
	m.supply = &supply{world: w, liveData: m.liveData}
	m.uploads = &uploads{world: w}
	m.saving = &saving{world: w, reporting: m.reporting}
	m.rolling = &rolling{world: w, saving: m.saving, uploads: m.uploads}
	m.leadership = &leadership{world: w, saving: m.saving}
	m.jobs = &jobs{world: w, saving: m.saving, leadership: m.leadership, uploads: m.uploads}
	return m
}

// Lead sets the term in which this pusher leads, 0 if its state has no terms. The caller calls it
// before any instance joins. What the pusher writes to instances names the term.
func (m *Machine) Lead(number int64) { m.term = term{number, true} }

// Step takes events in their order, and then a turn. It returns the effects in the order in which
// they were decided.
func (m *Machine) Step(now time.Time, events ...Event) []Effect {
	m.Take(now, events...)
	m.turn(now)
	out := m.effects
	m.effects = nil
	return out
}

// Take takes events without a turn. The pusher does so when it is about to end.
func (m *Machine) Take(now time.Time, events ...Event) {
	for _, ev := range events {
		ev.apply(m, now)
	}
}

// Facts returns the facts that were collected since the previous call.
func (m *Machine) Facts() []observe.TimedFact {
	out := m.facts
	m.facts = nil
	return out
}

// Shown returns what people should see after the last step.
func (m *Machine) Shown() (observe.View, report.Status) {
	return m.reporting.shown, m.reporting.reported
}

// Due returns when the next step is due even without an event. The zero time means never.
func (m *Machine) Due() time.Time {
	_, due := m.bindings.Table()
	return due
}

// LastSave returns the effect that saves the state when the pusher ends and no effect is under way.
func (m *Machine) LastSave(now time.Time) SaveState { return m.saving.lastSave(now) }

// RecordNodes makes the machine call a function with each node that it binds from now on. Decisions
// depend on nodes, and nodes are made of secrets. So an event log holds nodes in place of the
// secrets, and [Machine.Replay] takes them from there.
func (m *Machine) RecordNodes(to func(binding.RecordedNode)) { m.bindings.RecordNodes(to) }

// Replay makes the machine take its nodes from a log from now on. It binds nothing itself.
func (m *Machine) Replay() *binding.Replay { return m.bindings.Replay() }

// turn decides what to do about what is known, and collects the effects for the runner to start.
// The package comment lists what it does.
func (m *Machine) turn(now time.Time) {
	m.sorted = m.names()
	defer func() { m.sorted = nil }()
	m.view.Runs = runs(m.state.Rollout)
	m.liveData.refuseOwn(now)
	m.decision = m.inKnownStore(decide(m.view, m.state.Rollout.Failed, now), now)
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
	m.liveData.troubleWithLive(now)
	m.reporting.troubleWithNeeds(now)
	m.reporting.troubleWithSignatures(now)
	m.reporting.troubleWithNamed(now)
	m.reporting.look(now)
	m.saving.keepState(now)
}

// takeView takes the result of a look into the store.
func (m *Machine) takeView(view channel.View, err error, now time.Time) {
	m.trouble(report.AboutStore, err, now)
	m.rewound = errors.Is(err, channel.ErrRewound)
	if err != nil {
		return
	}
	view.Fleet = m.fleetName
	m.view, m.viewRead = view, true
	m.liveData.confirmLosses(now)
}

// tellInstances gives each instance the snapshots that matter, see instanceState.matters.
func (m *Machine) tellInstances() {
	matters := []snapshots.ID{m.state.Rollout.Good, m.decision.ID}
	if r := m.state.Rollout.Rollout; r != nil {
		matters = slices.Insert(matters, 0, r.Target)
	}
	matters = slices.DeleteFunc(matters, snapshots.ID.IsZero)
	for i := range m.served() {
		i.matters = matters
	}
}

// mayFollow reports whether instances may get live data: it was read, and this pusher leads.
func (m *Machine) mayFollow(now time.Time) bool {
	return m.leadership.leadsFleet(now) && m.live.Ready() && !m.liveData.blindStart(now)
}

// ready reports whether enough is known to take steps of the rollout and begin work. It waits for
// live data, and up to 10 s for the first answer of each instance: otherwise something that was not
// asked yet would count as missing. A store that was not read yet means Hold, see rolloutInput.
func (m *Machine) ready(now time.Time) bool {
	if !m.mayFollow(now) || !m.fleetKnown() || m.bindings.AwaitsCluster(m.state.Rollout.Good) ||
		m.state.Rollout.Rollout != nil && m.bindings.AwaitsCluster(m.state.Rollout.Rollout.Target) {
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
