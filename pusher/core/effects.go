package core

import (
	"time"

	"github.com/hapsnap/hapsnap/pusher/cluster"
	"github.com/hapsnap/hapsnap/pusher/fleet"
	"github.com/hapsnap/hapsnap/pusher/instance"
	"github.com/hapsnap/hapsnap/pusher/observe"
	"github.com/hapsnap/hapsnap/pusher/rollout"
	"github.com/hapsnap/hapsnap/snapshots"
	"github.com/hapsnap/hapsnap/snapshots/channel"
)

// Effect is something that a machine has decided to have done. It is a value, which names what it
// concerns and has no handle of anything: the runner has what it takes to carry it out.
type Effect interface {
	// String says what is done, and to whom. It contains no secrets.
	String() string
}

// OnInstance is an effect of package instance.
type OnInstance struct{ instance.Effect }

// ReadSnapshot reads a snapshot from this machine's disk, else from the store. It ends with
// [SnapshotRead].
type ReadSnapshot struct{ ID snapshots.ID }

func (r ReadSnapshot) String() string { return observe.Describe("read snapshot", "snapshot", r.ID) }

// KeepSnapshot keeps a snapshot on this machine's disk once more. It ends with [SnapshotRead].
type KeepSnapshot struct{ Snapshot snapshots.Snapshot }

func (k KeepSnapshot) String() string {
	return observe.Describe("keep snapshot", "snapshot", k.Snapshot.ID())
}

// ForgetSnapshots removes the snapshots from this machine's disk that are not needed. It ends
// with [SnapshotsForgotten].
type ForgetSnapshots struct{ Needed map[snapshots.ID]bool }

func (f ForgetSnapshots) String() string {
	return observe.Describe("forget snapshots", "needed", len(f.Needed))
}

// OpenCertificates opens the certificates that a snapshot carries, or reads those beside it. It
// ends with [CertificatesOpened].
type OpenCertificates struct{ Snapshot snapshots.Snapshot }

func (o OpenCertificates) String() string {
	return observe.Describe("open certificates", "snapshot", o.Snapshot.ID())
}

// WriteRejection notes a failure of a fleet in the channel. It ends with [RejectionWritten].
type WriteRejection struct {
	Failure rollout.Failure
	Fleet   string
	// Digest is that of the snapshot, "" where it is no longer at hand.
	Digest snapshots.Digest
	At     time.Time
}

func (w WriteRejection) String() string {
	return observe.Describe("write rejection", "snapshot", w.Failure.Snapshot, "reason", w.Failure.Reason)
}

// Edit rejects a snapshot of this digest in a channel, unless people named it anew meanwhile.
func (w WriteRejection) Edit(c channel.Channel, digest snapshots.Digest) channel.Channel {
	if w.Failure.Withdrawn(wishes(c, w.At)) {
		return c
	}
	return c.Reject(rejectionOf(w.Failure, digest, w.Fleet))
}

// WatchPods looks for the pods of a fleet, nil for none, in place of those that were looked for
// before. It sends [PodsFound] whenever others are found.
type WatchPods struct{ Pods *fleet.Pods }

func (w WatchPods) String() string {
	if w.Pods == nil {
		return "watch no pods"
	}
	return observe.Describe("watch pods", "namespace", w.Pods.Namespace)
}

// FollowCluster says what is needed of the cluster from now on.
type FollowCluster struct{ Wanted cluster.Wanted }

func (f FollowCluster) String() string { return "follow cluster" }

// SaveState saves the state, or says why there is none to be saved. It ends with [SaveEnded].
type SaveState struct {
	Data []byte
	Err  error
}

func (s SaveState) String() string { return observe.Describe("save state", "bytes", len(s.Data)) }

// RaiseTerm raises the term above one that was met on an instance. It ends with [Raised].
type RaiseTerm struct {
	Above int64
	Of    instance.Ref
}

func (r RaiseTerm) String() string {
	return observe.Describe("raise term", "instance", r.Of.Name, "above", r.Above)
}

// EndTerm ends the time in which this pusher leads: another one has taken the state. It has no
// end of its own.
type EndTerm struct{ Why error }

func (t EndTerm) String() string { return observe.Describe("end term", "why", t.Why) }
