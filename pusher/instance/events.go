package instance

import (
	"context"
	"errors"
	"net/netip"
	"time"

	"github.com/hapsnap/hapsnap/pusher/binding"
	"github.com/hapsnap/hapsnap/pusher/dataplane"
	"github.com/hapsnap/hapsnap/pusher/fleet"
	"github.com/hapsnap/hapsnap/pusher/observe"
	"github.com/hapsnap/hapsnap/pusher/preflight"
	"github.com/hapsnap/hapsnap/pusher/push"
	"github.com/hapsnap/hapsnap/pusher/report"
	"github.com/hapsnap/hapsnap/pusher/rollout"
	"github.com/hapsnap/hapsnap/snapshots"
	"github.com/hapsnap/hapsnap/snapshots/bind"
)

// Event says how an effect ended, or what an instance answered to a probe.
type Event interface {
	// From returns the instance that the event is about, and what is known of it.
	From() About
	// String says what happened, and to whom. It contains no secrets.
	String() string
}

// About is a part of each event.
type About struct {
	Ref   Ref
	Known Known
}

// From is a part of each event.
func (a About) From() About { return a }

func (a About) describe(what string, keys ...any) string {
	return a.Ref.describe(what, keys...)
}

// Known is what is known of an instance's haproxy.cfg and worker, apart from the results of single
// effects.
type Known struct {
	// Number orders the events of an instance, which may overtake one another.
	Number int
	Record push.RecordView
	// Override is what the worker runs if a push changed it without a reload.
	Override push.Override
	// Peer is the address of the last connection to its API, zero if there was none.
	Peer netip.AddrPort
}

// Interrupted reports whether an effect failed because the pusher, or its term, is about to end.
func Interrupted(err error) bool { return errors.Is(err, context.Canceled) }

// JoinFailed says why an instance could not be connected to.
type JoinFailed struct {
	About
	Err error
}

func (j JoinFailed) String() string { return j.describe("join failed", "err", j.Err) }

// Renewed is the end of a renewal of credentials.
type Renewed struct {
	About
	Spec fleet.Instance
	Err  error
}

func (r Renewed) String() string { return r.describe("credentials renewed", "err", r.Err) }

// Probed is the answer of an instance to a probe, or the error.
type Probed struct {
	About
	Info  dataplane.RuntimeInfo
	Err   error
	Asked time.Time
}

func (p Probed) String() string {
	return p.describe("probed", "node", p.Info.Node, "pid", p.Info.PID, "err", p.Err)
}

// Checked has the findings of a check of how an instance is set up, or the error.
type Checked struct {
	About
	Found []preflight.Finding
	Err   error
}

func (c Checked) String() string {
	return c.describe("checked", "findings", len(c.Found), "err", c.Err)
}

// ClaimEnded is the end of a claim.
type ClaimEnded struct {
	About
	Term int64
	Err  error
}

func (c ClaimEnded) String() string { return c.describe("claim ended", "term", c.Term, "err", c.Err) }

// PushEnded is the end of a push.
type PushEnded struct {
	About
	Push   rollout.Push
	Want   bind.Bound
	Change report.Change
	Done   push.Done
	// Certificates are those of Want, by path.
	Certificates push.CertificateHashes
	// Written are the certificates of the snapshot that are on its disk.
	Written []push.Stored
	Took    time.Duration
	Err     error
}

func (p PushEnded) String() string {
	return p.describe("push ended", "snapshot", p.Push.Snapshot, "why", string(p.Push.Purpose),
		"outcome", string(p.Outcome()), "pid", p.Done.Info.PID, "reloaded", p.Done.Reloaded, "err", p.Err)
}

// Outcome returns the outcome of the push.
func (p PushEnded) Outcome() rollout.Outcome { return outcome(p.Err) }

func outcome(err error) rollout.Outcome {
	switch {
	case err == nil:
		return rollout.Applied
	case errors.Is(err, push.ErrInstance), errors.Is(err, push.ErrDirectory):
		return rollout.Faulty
	case errors.Is(err, push.ErrRefused):
		return rollout.Refused
	}
	return rollout.Trouble
}

// UpdateEnded is the end of a change of the running worker.
type UpdateEnded struct {
	About
	Node      string
	Began     time.Time
	Had, Have push.Running
	Err       error
}

func (u UpdateEnded) String() string {
	return u.describe("update ended", "node", u.Node, "reloaded", u.Have.Reloaded, "err", u.Err)
}

// PersistEnded is the end of writing servers to disk.
type PersistEnded struct {
	About
	Have  push.Running
	Took  time.Duration
	Err   error
	Alone bool
}

func (p PersistEnded) String() string { return p.describe("persist ended", "err", p.Err) }

// TidyEnded is the end of deleting dynamic servers.
type TidyEnded struct {
	About
	Have push.Running
	Err  error
}

func (t TidyEnded) String() string { return t.describe("tidy ended", "err", t.Err) }

// CollectEnded is the end of removing files.
type CollectEnded struct {
	About
	Garbage, Removed []push.Stored
	Err              error
}

func (c CollectEnded) String() string {
	return c.describe("collect ended", "removed", len(c.Removed), "err", c.Err)
}

// InspectEnded is the end of an inspection.
type InspectEnded struct {
	About
	// Inspect is the effect, with what was wanted and what was known.
	Inspect Inspect
	Found   push.Inspection
	Err     error
}

func (i InspectEnded) String() string {
	return i.describe("inspect ended", "faults", i.Found.Faults, "err", i.Err)
}

// MendEnded is the end of putting files back.
type MendEnded struct {
	About
	Disk    push.Digest
	Servers []bind.Server
	Err     error
}

func (m MendEnded) String() string { return m.describe("mend ended", "err", m.Err) }

// Sampled is the end of asking for statistics.
type Sampled struct {
	About
	Sample rollout.Sample
	Err    error
}

func (s Sampled) String() string {
	return s.describe("sampled", "requests", s.Sample.Requests, "err", s.Err)
}

// Ref names an instance in effects and events.
type Ref struct {
	Name string
	// UID is that of its pod, "" without one.
	UID string
	// Joined counts joins. It tells the event of an earlier connection of that name from those of a
	// later one, which may be to another address.
	Joined int
}

// Effect is something to be done on an instance.
type Effect interface {
	// On names the instance.
	On() Ref
	// String says what is done, and to whom. It contains no secrets.
	String() string
}

// On is a part of each effect.
func (r Ref) On() Ref { return r }

func (r Ref) describe(what string, keys ...any) string {
	return observe.Describe(what, append([]any{"instance", r.Name}, keys...)...)
}

// Join connects to an instance, and probes it until it leaves or joins again. If there is a connection
// to the same instance, what is known of it stays. Otherwise Remembered and Override say what was
// known before a restart.
type Join struct {
	Ref
	Spec       fleet.Instance
	Remembered push.Remembered
	Override   push.Override
}

func (j Join) String() string { return j.describe("join") }

// Renew gives an instance's client other credentials. Work under way goes on with them, so that a push
// is not lost.
type Renew struct {
	Ref
	Spec fleet.Instance
}

func (r Renew) String() string { return r.describe("renew credentials") }

// Leave ends all work on an instance that is gone: the address of a pod may soon belong to another
// one. Jobs on an instance that is not a pod go on.
type Leave struct{ Ref }

func (l Leave) String() string { return l.describe("leave") }

// Check looks for what would make a push fail, as the verb check does. It writes nothing.
type Check struct{ Ref }

func (c Check) String() string { return c.describe("check") }

// Claim reads who leads an instance and what its worker was started from, and writes to its disk that
// this pusher leads it, and in which term.
type Claim struct {
	Ref
	Term int64
}

func (c Claim) String() string { return c.describe("claim", "term", c.Term) }

// Push brings an instance to run a snapshot.
type Push struct {
	Ref
	Push          rollout.Push
	Want, Running binding.Unbound
	// Whole is set if the push has to fail when a certificate that the snapshot names is missing.
	Whole bool
	Have  push.Running
	// Traceparent is the trace that the snapshot was published in.
	Traceparent string
}

func (p Push) String() string {
	return p.describe("push", "snapshot", p.Push.Snapshot, "why", string(p.Push.Purpose))
}

// Update changes servers, map entries and certificates in the running worker.
type Update struct {
	Ref
	Want    push.Wanted     // without its function Bind
	Unbound binding.Unbound // for Bind
	Have    push.Running
	// Snapshot is the one that the worker runs. Traceparent is the trace in which it was published.
	Snapshot    snapshots.ID
	Traceparent string
}

func (u Update) String() string { return u.describe("update", "node", u.Want.Node) }

// Persist writes the servers that the worker should have to disk, and changes the worker to them. If Alone is set, it does
// not change the worker, and an [Update] by calls may run at the same time.
type Persist struct {
	Ref
	Want  binding.Unbound
	Have  push.Running
	Alone bool
}

func (p Persist) String() string { return p.describe("persist", "snapshot", p.Want.ID) }

// Tidy deletes dynamic servers that the worker no longer needs.
type Tidy struct {
	Ref
	Have push.Running
}

func (t Tidy) String() string { return t.describe("tidy") }

// Collect removes files that no snapshot in use needs.
type Collect struct {
	Ref
	Garbage []push.Stored
}

func (c Collect) String() string { return c.describe("collect", "files", len(c.Garbage)) }

// Inspect compares an instance with what the pusher left there.
type Inspect struct {
	Ref
	Want  binding.Unbound
	Have  push.Running
	Round int
}

func (i Inspect) String() string { return i.describe("inspect", "round", i.Round) }

// Mend puts back files that somebody else changed or removed.
type Mend struct {
	Ref
	Want binding.Unbound
}

func (m Mend) String() string { return m.describe("mend", "snapshot", m.Want.ID) }

// Sample asks an instance for the statistics of its worker.
type Sample struct {
	Ref
	// Ignore are frontends whose requests do not count.
	Ignore []string
	At     time.Time
}

func (s Sample) String() string { return s.describe("sample") }
