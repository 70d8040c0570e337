package core

import (
	"time"

	"github.com/hapsnap/hapsnap/pusher/binding"
	"github.com/hapsnap/hapsnap/pusher/cluster"
	"github.com/hapsnap/hapsnap/pusher/fleet"
	"github.com/hapsnap/hapsnap/pusher/instance"
	"github.com/hapsnap/hapsnap/pusher/observe"
	"github.com/hapsnap/hapsnap/pusher/report"
	"github.com/hapsnap/hapsnap/pusher/rollout"
	"github.com/hapsnap/hapsnap/snapshots"
	"github.com/hapsnap/hapsnap/snapshots/channel"
)

// Event is something that a machine learns: what a source says, or how an effect ended. It is a
// value that logs and tests can print.
type Event interface {
	// apply writes the event into the machine. It waits for nothing.
	apply(m *Machine, now time.Time)
	// String says what happened, and to whom. It contains no secrets.
	String() string
}

// OfInstance is an event of package instance, about one instance.
type OfInstance struct{ instance.Event }

func (o OfInstance) apply(m *Machine, now time.Time) {
	m.takeInstanceEvent(o.Event, now)
	i := m.instanceOf(o.From().Ref)
	m.shareLists(i)
	switch o.Event.(type) {
	case instance.Probed, instance.Sampled:
	default: // a job may have changed dynamic servers, and not the list of the others
		i.compared = comparison{}
	}
}

// ViewRead is the result of reading the store.
type ViewRead struct {
	View channel.View
	Err  error
}

func (v ViewRead) apply(m *Machine, now time.Time) { m.takeView(v.View, v.Err, now) }

func (v ViewRead) String() string {
	return observe.Describe("store read", "newest", v.View.Head(), "snapshots", len(v.View.IDs), "err", v.Err)
}

// LiveRead is the result of reading the directory with live objects.
type LiveRead struct {
	Live binding.Objects
	Err  error
}

func (l LiveRead) apply(m *Machine, now time.Time) { m.liveData.takeLive(l.Live, l.Err, now) }

func (l LiveRead) String() string {
	return observe.Describe("live objects read", "services", len(l.Live.Endpoints), "certificates", len(l.Live.Certificates), "err", l.Err)
}

// FleetRead is the result of reading the file of the fleet.
type FleetRead struct {
	Fleet fleet.Fleet
	Err   error
}

func (f FleetRead) apply(m *Machine, now time.Time) { m.membership.takeFleet(f.Fleet, f.Err, now) }

func (f FleetRead) String() string {
	return observe.Describe("fleet read", "fleet", f.Fleet.Name, "instances", len(f.Fleet.Instances), "err", f.Err)
}

// PodsFound lists the pods that discovery found.
type PodsFound struct {
	Of    fleet.Pods
	Found []fleet.Instance
	Err   error
}

func (p PodsFound) apply(m *Machine, now time.Time) { m.membership.takePods(p.Of, p.Found, p.Err, now) }

func (p PodsFound) String() string {
	return observe.Describe("pods found", "pods", len(p.Found), "err", p.Err)
}

// CredentialsMade says why credentials cannot be made or used, or that they can be again.
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

// StatusWritten says why the status cannot be written where people read it, or that it can be
// again.
type StatusWritten struct{ Err error }

func (s StatusWritten) apply(m *Machine, now time.Time) { m.trouble(report.AboutStatus, s.Err, now) }

func (s StatusWritten) String() string { return observe.Describe("status written", "err", s.Err) }

// ClusterChanged says what has changed in the cluster since the previous ClusterChanged.
type ClusterChanged struct{ Change cluster.Change }

func (c ClusterChanged) apply(m *Machine, now time.Time) { m.liveData.takeCluster(c.Change, now) }

func (c ClusterChanged) String() string {
	return observe.Describe("cluster changed", "services", len(c.Change.Endpoints), "secrets", len(c.Change.Secrets), "status", c.Change.Status != nil)
}

// LeaderSeen names the leader, when this pusher sees another one than before.
type LeaderSeen struct{ Holder string }

func (l LeaderSeen) apply(m *Machine, _ time.Time) { m.holder = l.Holder }

func (l LeaderSeen) String() string { return observe.Describe("leader seen", "holder", l.Holder) }

// SnapshotRead is the result of reading a snapshot, or of another try to keep it on disk.
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

// SnapshotsForgotten says that the removal of snapshots from this host's disk has ended.
type SnapshotsForgotten struct{}

func (SnapshotsForgotten) apply(m *Machine, _ time.Time) { m.supply.forgetting = nil }

func (SnapshotsForgotten) String() string { return "snapshots forgotten" }

// CertificatesOpened is the result of decrypting the certificates that a snapshot carries. Found
// has them by version.
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

// RejectionWritten is the result of writing the rejection of a snapshot into the channel.
type RejectionWritten struct {
	ID  snapshots.ID
	Err error
}

func (r RejectionWritten) apply(m *Machine, now time.Time) {
	m.rejecting.underWay, m.rejecting.after = false, now.Add(5*time.Second)
	m.trouble(report.AboutChannel, r.Err, now)
}

func (r RejectionWritten) String() string {
	return observe.Describe("rejection written", "snapshot", r.ID, "err", r.Err)
}

// SaveEnded is the result of saving the state.
type SaveEnded struct {
	Err error
	// Taken is set if the save failed because another pusher has taken the state.
	Taken bool
}

func (v SaveEnded) apply(m *Machine, now time.Time) { m.saving.saveEnded(v, now) }

func (v SaveEnded) String() string { return observe.Describe("save ended", "err", v.Err) }

// Raised is the result of raising the term.
type Raised struct {
	RaiseTerm
	Term  int64
	Err   error
	Taken bool // as in [SaveEnded]
}

func (r Raised) apply(m *Machine, now time.Time) { m.leadership.raiseEnded(r, now) }

func (r Raised) String() string {
	return observe.Describe("term raised", "instance", r.Of.Name, "above", r.Above, "term", r.Term, "err", r.Err)
}

// Effect is something that a machine has decided and the runner carries out. It is a value: it names
// what it concerns, and holds no client or handle.
type Effect interface {
	// String says what is done, and to whom. It contains no secrets.
	String() string
}

// OnInstance is an effect of package instance.
type OnInstance struct{ instance.Effect }

// ReadSnapshot reads a snapshot from this host's disk, or, if it is not there, from the store. It ends
// with [SnapshotRead].
type ReadSnapshot struct{ ID snapshots.ID }

func (r ReadSnapshot) String() string { return observe.Describe("read snapshot", "snapshot", r.ID) }

// KeepSnapshot tries again to keep a snapshot on this host's disk. It ends with [SnapshotRead].
type KeepSnapshot struct{ Snapshot snapshots.Snapshot }

func (k KeepSnapshot) String() string {
	return observe.Describe("keep snapshot", "snapshot", k.Snapshot.ID())
}

// ForgetSnapshots removes unneeded snapshots from this host's disk. It ends with
// [SnapshotsForgotten].
type ForgetSnapshots struct{ Needed map[snapshots.ID]bool }

func (f ForgetSnapshots) String() string {
	return observe.Describe("forget snapshots", "needed", len(f.Needed))
}

// OpenCertificates decrypts the certificates that a snapshot carries, or reads those beside it. It
// ends with [CertificatesOpened].
type OpenCertificates struct{ Snapshot snapshots.Snapshot }

func (o OpenCertificates) String() string {
	return observe.Describe("open certificates", "snapshot", o.Snapshot.ID())
}

// WriteRejection notes a failure of a fleet in the channel. It ends with [RejectionWritten].
type WriteRejection struct {
	Failure rollout.Failure
	Fleet   string
	// Digest is that of the snapshot, "" if the snapshot is no longer in the cache.
	Digest snapshots.Digest
	At     time.Time
}

func (w WriteRejection) String() string {
	return observe.Describe("write rejection", "snapshot", w.Failure.Snapshot, "reason", w.Failure.Reason)
}

// Edit rejects the digest in a channel, unless people have named the snapshot again since.
func (w WriteRejection) Edit(c channel.Channel, digest snapshots.Digest) channel.Channel {
	if w.Failure.Withdrawn(wishes(c, w.At)) {
		return c
	}
	return c.Reject(rejectionOf(w.Failure, digest, w.Fleet))
}

// WatchPods looks for the pods of a fleet, and ends the previous WatchPods. Without Pods it only
// does the latter. It sends [PodsFound] for each change.
type WatchPods struct{ Pods *fleet.Pods }

func (w WatchPods) String() string {
	if w.Pods == nil {
		return "watch no pods"
	}
	return observe.Describe("watch pods", "namespace", w.Pods.Namespace)
}

// FollowCluster says what to watch in the cluster from now on.
type FollowCluster struct{ Wanted cluster.Wanted }

func (f FollowCluster) String() string { return "follow cluster" }

// SaveState saves the encoded state. Err is set if it could not be encoded. It ends with [SaveEnded].
type SaveState struct {
	Data []byte
	Err  error
}

func (s SaveState) String() string { return observe.Describe("save state", "bytes", len(s.Data)) }

// RaiseTerm raises the term above one that was found on an instance. It ends with [Raised].
type RaiseTerm struct {
	Above int64
	Of    instance.Ref
}

func (r RaiseTerm) String() string {
	return observe.Describe("raise term", "instance", r.Of.Name, "above", r.Above)
}

// EndTerm ends the term of this pusher, since another pusher has taken the state. No event follows.
type EndTerm struct{ Why error }

func (t EndTerm) String() string { return observe.Describe("end term", "why", t.Why) }
