package core

import (
	"time"

	"github.com/hapsnap/hapsnap/pusher/binding"
	"github.com/hapsnap/hapsnap/pusher/cluster"
	"github.com/hapsnap/hapsnap/pusher/fleet"
	"github.com/hapsnap/hapsnap/pusher/instance"
	"github.com/hapsnap/hapsnap/pusher/observe"
	"github.com/hapsnap/hapsnap/pusher/report"
	"github.com/hapsnap/hapsnap/snapshots"
	"github.com/hapsnap/hapsnap/snapshots/channel"
)

// Event is something that a machine learns: what a source says, or how an effect ended. It
// is a value, which the log and tests can print.
type Event interface {
	// apply has the machine take the event. It waits for nothing.
	apply(m *Machine, now time.Time)
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

func (v ViewRead) apply(m *Machine, now time.Time) { m.takeView(v.View, v.Err, now) }

func (v ViewRead) String() string {
	return observe.Describe("store read", "newest", v.View.Head(), "snapshots", len(v.View.IDs), "err", v.Err)
}

// LiveRead is the end of a read of the directory with live objects.
type LiveRead struct {
	Live binding.Objects
	Err  error
}

func (l LiveRead) apply(m *Machine, now time.Time) { m.following.takeLive(l.Live, l.Err, now) }

func (l LiveRead) String() string {
	return observe.Describe("live objects read", "services", len(l.Live.Endpoints), "certificates", len(l.Live.Certificates), "err", l.Err)
}

// FleetRead is the end of a read of the fleet's file.
type FleetRead struct {
	Fleet fleet.Fleet
	Err   error
}

func (f FleetRead) apply(m *Machine, now time.Time) { m.membership.takeFleet(f.Fleet, f.Err, now) }

func (f FleetRead) String() string {
	return observe.Describe("fleet read", "fleet", f.Fleet.Name, "instances", len(f.Fleet.Instances), "err", f.Err)
}

// PodsFound is what discovery knows of the pods that are looked for.
type PodsFound struct {
	Of    fleet.Pods
	Found []fleet.Instance
	Err   error
}

func (p PodsFound) apply(m *Machine, now time.Time) { m.membership.takePods(p.Of, p.Found, p.Err, now) }

func (p PodsFound) String() string {
	return observe.Describe("pods found", "pods", len(p.Found), "err", p.Err)
}

// CredentialsMade says what keeps credentials from being made or used, if that has changed.
type CredentialsMade struct {
	Of  fleet.Pods
	Err error
}

func (c CredentialsMade) apply(m *Machine, now time.Time) {
	if m.pods != nil && *m.pods == c.Of {
		m.trouble(report.AboutCredentials, c.Err, now)
	}
}

func (c CredentialsMade) String() string {
	return observe.Describe("credentials looked at", "err", c.Err)
}

// StatusWritten says what keeps the status from being written where people read it, if that has
// changed.
type StatusWritten struct{ Err error }

func (s StatusWritten) apply(m *Machine, now time.Time) { m.trouble("status", s.Err, now) }

func (s StatusWritten) String() string { return observe.Describe("status written", "err", s.Err) }

// ClusterChanged is what changed in the cluster since the last time.
type ClusterChanged struct{ Change cluster.Change }

func (c ClusterChanged) apply(m *Machine, now time.Time) { m.following.takeCluster(c.Change, now) }

func (c ClusterChanged) String() string {
	return observe.Describe("cluster changed", "services", len(c.Change.Endpoints), "secrets", len(c.Change.Secrets), "status", c.Change.Status != nil)
}

// LeaderSeen is that another pusher than before, or this one, was last seen to lead.
type LeaderSeen struct{ Holder string }

func (l LeaderSeen) apply(m *Machine, _ time.Time) { m.holder = l.Holder }

func (l LeaderSeen) String() string { return observe.Describe("leader seen", "holder", l.Holder) }

// SnapshotRead is the end of a read of a snapshot, or of keeping it on disk once more.
type SnapshotRead struct {
	ID       snapshots.ID
	Snapshot snapshots.Snapshot
	Err      error
}

func (s SnapshotRead) apply(m *Machine, now time.Time) {
	m.snapshotCache.Take(s.ID, s.Snapshot, s.Err, now)
}

func (s SnapshotRead) String() string {
	return observe.Describe("snapshot read", "snapshot", s.ID, "err", s.Err)
}

// SnapshotsForgotten is the end of removing snapshots from this machine's disk.
type SnapshotsForgotten struct{}

func (SnapshotsForgotten) apply(m *Machine, _ time.Time) { m.supply.forgetting = nil }

func (SnapshotsForgotten) String() string { return "snapshots forgotten" }

// CertificatesOpened is the end of opening the certificates that a snapshot carries, which
// are found by version.
type CertificatesOpened struct {
	ID    snapshots.ID
	Found map[string][]byte
	Err   error
}

func (c CertificatesOpened) apply(m *Machine, now time.Time) {
	m.live.Decrypted(c.ID, c.Found, c.Err, now)
}

func (c CertificatesOpened) String() string {
	return observe.Describe("certificates opened", "snapshot", c.ID, "certificates", len(c.Found), "err", c.Err)
}

// RejectionWritten is the end of noting a failed snapshot in the channel.
type RejectionWritten struct {
	ID  snapshots.ID
	Err error
}

func (r RejectionWritten) apply(m *Machine, now time.Time) {
	m.rejecting.underWay, m.rejecting.after = false, now.Add(5*time.Second)
	m.trouble("channel", r.Err, now)
}

func (r RejectionWritten) String() string {
	return observe.Describe("rejection written", "snapshot", r.ID, "err", r.Err)
}

// SaveEnded is the end of saving the state.
type SaveEnded struct {
	Err error
	// Taken is set where it failed because another pusher has taken the state.
	Taken bool
}

func (v SaveEnded) String() string { return observe.Describe("save ended", "err", v.Err) }

// Raised is the end of raising the term.
type Raised struct {
	RaiseTerm
	Term  int64
	Err   error
	Taken bool // as in [SaveEnded]
}

func (r Raised) String() string {
	return observe.Describe("term raised", "instance", r.Of.Name, "above", r.Above, "term", r.Term, "err", r.Err)
}
