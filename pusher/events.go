package pusher

import (
	"errors"
	"reflect"
	"time"

	"github.com/hapsnap/hapsnap/pusher/binding"
	"github.com/hapsnap/hapsnap/pusher/cluster"
	"github.com/hapsnap/hapsnap/pusher/fleet"
	"github.com/hapsnap/hapsnap/pusher/instance"
	"github.com/hapsnap/hapsnap/pusher/observe"
	"github.com/hapsnap/hapsnap/pusher/rollout"
	"github.com/hapsnap/hapsnap/snapshots"
	"github.com/hapsnap/hapsnap/snapshots/channel"
)

// Event is something that the engine learns: what a source says, or how an effect ended. It
// is a value, which the log and tests can print.
type Event interface {
	// apply has the engine take the event. It waits for nothing.
	apply(e *engine, now time.Time)
	// String says what happened, and to whom. It contains no secrets.
	String() string
}

// OfInstance is an event of package instance.
type OfInstance struct{ instance.Event }

// ViewRead is the end of a look into the store.
type ViewRead struct {
	View channel.View
	Err  error
}

func (v ViewRead) apply(e *engine, now time.Time) { e.takeView(v.View, v.Err, now) }

func (v ViewRead) String() string {
	return observe.Describe("store read", "newest", v.View.Head(), "snapshots", len(v.View.IDs), "err", v.Err)
}

// takeView takes what the store said.
func (e *engine) takeView(view channel.View, err error, now time.Time) {
	e.trouble("store", err, now)
	e.rewound = errors.Is(err, channel.ErrRewound)
	if err != nil {
		return
	}
	if view.Seen != e.state.Seen {
		e.state.Seen, e.dirty = view.Seen, true
	}
	view.Fleet = e.fleetName
	e.view, e.viewRead = view, true
	e.confirmLosses(now)
}

// LiveRead is the end of a read of the directory with live objects.
type LiveRead struct {
	Live binding.Objects
	Err  error
}

func (l LiveRead) apply(e *engine, now time.Time) { e.takeLive(l.Live, l.Err, now) }

func (l LiveRead) String() string {
	return observe.Describe("live objects read", "services", len(l.Live.Endpoints), "certificates", len(l.Live.Certificates), "err", l.Err)
}

// FleetRead is the end of a read of the fleet's file.
type FleetRead struct {
	Fleet fleet.Fleet
	Err   error
}

func (f FleetRead) apply(e *engine, now time.Time) { e.takeFleet(f.Fleet, f.Err, now) }

func (f FleetRead) String() string {
	return observe.Describe("fleet read", "fleet", f.Fleet.Name, "instances", len(f.Fleet.Instances), "err", f.Err)
}

// takeFleet takes the fleet's file. The pusher connects anew to instances that changed.
func (e *engine) takeFleet(f fleet.Fleet, err error, now time.Time) {
	e.trouble("fleet", err, now)
	if err != nil {
		return
	}
	e.takePolicy(f.Rollout.Apply(rollout.DefaultPolicy()), now)
	e.listed, e.fleetName, e.view.Fleet = f.Instances, f.Name, f.Name
	e.followPods(f.Pods, now)
	e.gather(now)
}

// takePolicy takes what the fleet's file says of rollouts, where flags do not.
func (e *engine) takePolicy(p rollout.Policy, now time.Time) {
	if len(e.Waves) > 0 {
		p.Waves = e.Waves
	}
	if e.Soak != nil {
		p.Soak = *e.Soak
	}
	if len(e.instances) > 0 && !reflect.DeepEqual(p, e.policy) {
		e.tell(observe.Info("settings of the rollout changed"), now)
	}
	e.policy = p
}

// PodsFound is what discovery knows of the pods that are looked for.
type PodsFound struct {
	Of    fleet.Pods
	Found []fleet.Instance
	Err   error
}

func (p PodsFound) apply(e *engine, now time.Time) { e.takePods(p.Of, p.Found, p.Err, now) }

func (p PodsFound) String() string {
	return observe.Describe("pods found", "pods", len(p.Found), "err", p.Err)
}

// ClusterChanged is what changed in the cluster since the last time.
type ClusterChanged struct{ Change cluster.Change }

func (c ClusterChanged) apply(e *engine, now time.Time) { e.takeCluster(c.Change, now) }

func (c ClusterChanged) String() string {
	return observe.Describe("cluster changed", "services", len(c.Change.Endpoints), "secrets", len(c.Change.Secrets), "status", c.Change.Status != nil)
}

// LeaderSeen is that another pusher than before, or this one, was last seen to lead.
type LeaderSeen struct{ Holder string }

func (l LeaderSeen) apply(e *engine, _ time.Time) { e.leadership.holder = l.Holder }

func (l LeaderSeen) String() string { return observe.Describe("leader seen", "holder", l.Holder) }

// SnapshotRead is the end of a read of a snapshot, or of keeping it on disk once more.
type SnapshotRead struct {
	ID       snapshots.ID
	Snapshot snapshots.Snapshot
	Err      error
}

func (s SnapshotRead) apply(e *engine, now time.Time) {
	e.snapshotCache.Take(s.ID, s.Snapshot, s.Err, now)
}

func (s SnapshotRead) String() string {
	return observe.Describe("snapshot read", "snapshot", s.ID, "err", s.Err)
}

// SnapshotsForgotten is the end of removing snapshots from this machine's disk.
type SnapshotsForgotten struct{}

func (SnapshotsForgotten) apply(e *engine, _ time.Time) { e.forgetting = nil }

func (SnapshotsForgotten) String() string { return "snapshots forgotten" }

// CertificatesOpened is the end of opening the certificates that a snapshot carries, which
// are found by version.
type CertificatesOpened struct {
	ID    snapshots.ID
	Found map[string][]byte
	Err   error
}

func (c CertificatesOpened) apply(e *engine, now time.Time) {
	e.live.Decrypted(c.ID, c.Found, c.Err, now)
}

func (c CertificatesOpened) String() string {
	return observe.Describe("certificates opened", "snapshot", c.ID, "certificates", len(c.Found), "err", c.Err)
}

// RejectionWritten is the end of noting a failed snapshot in the channel.
type RejectionWritten struct {
	ID  snapshots.ID
	Err error
}

func (r RejectionWritten) apply(e *engine, now time.Time) {
	e.rejecting, e.rejectAt = false, now.Add(5*time.Second)
	e.trouble("channel", r.Err, now)
}

func (r RejectionWritten) String() string {
	return observe.Describe("rejection written", "snapshot", r.ID, "err", r.Err)
}

// SaveEnded is the end of saving the state.
type SaveEnded struct{ Err error }

func (s SaveEnded) String() string { return observe.Describe("save ended", "err", s.Err) }

// Raised is the end of raising the term.
type Raised struct {
	RaiseTerm
	Term int64
	Err  error
}

func (r Raised) String() string {
	return observe.Describe("term raised", "instance", r.Of.Name, "above", r.Above, "term", r.Term, "err", r.Err)
}
