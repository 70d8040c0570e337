package instance

import (
	"time"

	"github.com/hapsnap/hapsnap/pusher/binding"
	"github.com/hapsnap/hapsnap/pusher/fleet"
	"github.com/hapsnap/hapsnap/pusher/observe"
	"github.com/hapsnap/hapsnap/pusher/push"
	"github.com/hapsnap/hapsnap/pusher/rollout"
	"github.com/hapsnap/hapsnap/snapshots"
)

// Ref names an instance in effects and events.
type Ref struct {
	Name string
	// UID is that of its pod, "" without one.
	UID string
	// Joined counts the connections under one name: what an effect on an earlier one came to
	// is not taken for news of a later one, which may be to another address.
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

// Join connects to an instance, and asks it again and again what its worker runs, until it
// leaves or joins again. What is known of another connection to the same instance stays; else
// it is what was remembered over a restart.
type Join struct {
	Ref
	Spec       fleet.Instance
	Remembered push.Remembered
	Override   push.Override
}

func (j Join) String() string { return j.describe("join") }

// Renew has an instance asked with other credentials from now on. Work that is under way goes
// on, with them: a push is not lost.
type Renew struct {
	Ref
	Spec fleet.Instance
}

func (r Renew) String() string { return r.describe("renew credentials") }

// Leave ends all that is done with an instance that is gone: the address of a pod may be
// another's in a moment. Jobs on an instance that is no pod go on.
type Leave struct{ Ref }

func (l Leave) String() string { return l.describe("leave") }

// Check looks for what would keep a push from working, as the verb check does. It writes
// nothing.
type Check struct{ Ref }

func (c Check) String() string { return c.describe("check") }

// Claim looks who leads an instance and what its worker was started from, and writes to its
// disk that this pusher leads it, and in which term.
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
	// Whole is set where the instance must get all that the snapshot needs.
	Whole bool
	Have  push.Running
	// Traceparent is the trace that the snapshot was published in.
	Traceparent string
}

func (p Push) String() string {
	return p.describe("push", "snapshot", p.Push.Snapshot, "why", string(p.Push.Purpose))
}

// Update changes servers and certificates in the running worker.
type Update struct {
	Ref
	Want  push.Wanted // without what binds
	Whole binding.Unbound
	Have  push.Running
	// Running is the snapshot that it runs, which was published in a trace.
	Running     snapshots.ID
	Traceparent string
}

func (u Update) String() string { return u.describe("update", "node", u.Want.Node) }

// Persist writes to disk what the worker is to have, and brings the worker to it.
type Persist struct {
	Ref
	Want binding.Unbound
	Have push.Running
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

// Inspect compares an instance with what was left on it.
type Inspect struct {
	Ref
	Want  binding.Unbound
	Have  push.Running
	Round int
}

func (i Inspect) String() string { return i.describe("inspect", "round", i.Round) }

// Mend puts files back.
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
