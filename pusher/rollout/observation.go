package rollout

import (
	"time"

	"github.com/hapsnap/hapsnap/snapshots"
)

// Observation is what is known of the world outside.
type Observation struct {
	// Want is the snapshot that the channel says should run, zero when it says
	// nothing that could be used.
	Want snapshots.ID
	// Intent tells why, so that two wishes for one snapshot can be told apart:
	// the newest one, or a pin made at some time.
	Intent string
	// MayWait is set when it is wanted for being the newest, not by a person's
	// order: then a rollout that is past half of the fleet is finished first.
	MayWait bool
	// Wishes are what people named in the channel, whether it counts now or not.
	Wishes []Wish
	// Hold stops the fleet where it is: paused, the store gone, nothing found.
	Hold bool
	// Channel is set when the channel was read; Rejected then lists the short
	// digests that it rejects.
	Channel  bool
	Rejected []string
	// Promotion and Abort are what people said last of a rollout, if they did.
	Promotion, Abort Order
	// Instances are those of the fleet, sorted by name.
	Instances []Seen
	// Results are the pushes that ended since the last step.
	Results []Result
	// Backends are those of Good, by name, compared with the snapshot Compared; nil if
	// that is not known.
	Backends map[string]Backend
	Compared snapshots.ID
	// Moved is when the live endpoints of a backend changed, of those where that was
	// not long ago.
	Moved map[string]time.Time
	// Reloads are the workers that the caller itself replaced since the last step
	// without pushing a snapshot, by instance.
	Reloads map[string]int
}

// Wish is a snapshot that a person named to be run, with its [Observation.Intent].
type Wish struct {
	Snapshot snapshots.ID
	Intent   string
}

// Order is what a person says of the rollout of a snapshot. The zero value is none.
type Order struct {
	Snapshot snapshots.ID
	// Mark tells one order from another about the same snapshot.
	Mark string
	// Full has a promotion go to all that remain.
	Full bool
	// Says is who gave it, and why.
	Says string
}

// Seen is what is known of one instance.
type Seen struct {
	Name, Zone string
	// Reachable is set when its worker said what it runs.
	Reachable bool
	// Running is the snapshot that the worker names, zero for none of ours.
	Running snapshots.ID
	// PID is the worker's, and Started when it began by the caller's clock, zero if
	// that is not known. A container that is restarted may get the same PID.
	PID     int
	Started time.Time
	// Busy is set while the caller changes something in the running worker, so
	// that no push can begin.
	Busy bool
	// HardStopAfter is how long the worker may live after it was replaced, zero if its
	// configuration does not say.
	HardStopAfter time.Duration
	// Sample is what its worker counted until it was last asked.
	Sample Sample
	// Light are the snapshots that its worker can be brought to without a reload.
	Light []snapshots.ID
	// Foreign is set when its worker names Running and was started from something else.
	Foreign bool
	// Stale is set when Running, joined with today's live data, needs a reload.
	Stale bool
	// Died is when the worker was last seen to have been replaced by nobody known, zero
	// for never.
	Died time.Time
}

// Backend is what is known of a backend of the last good snapshot.
type Backend struct {
	// Changed is set if the snapshot that is compared says something else of its
	// servers: in its own lines, or in those that it takes from elsewhere.
	Changed bool
	// Reached is set if that snapshot sends it other requests, or treats them otherwise.
	Reached bool
	// Check is how long a server that is dead counts as up at most.
	Check time.Duration
}

// Outcome is how a push ended.
type Outcome string

// The outcomes.
const (
	// Applied: the worker names the snapshot.
	Applied Outcome = "applied"
	// Refused: the snapshot cannot run on the instance: HAProxy refused it, or did
	// not start with it. The instance runs what it ran before.
	Refused Outcome = "refused"
	// Faulty: the snapshot cannot run on the instance because of the instance: its
	// paths, ports, limits, permissions or disk. Another one may take it.
	Faulty Outcome = "faulty"
	// Trouble: the instance could not be pushed to, which says nothing about the
	// snapshot.
	Trouble Outcome = "trouble"
	// NotBegun: the push was not begun, since something had changed that the step went by.
	// The next step decides anew, and nothing counts as tried.
	NotBegun Outcome = "not begun"
)

// Result is the end of a push.
type Result struct {
	Instance string
	Snapshot snapshots.ID
	Outcome  Outcome
	// PID is the worker after the push, where it was applied, and Reloaded is set
	// if it is another one than before.
	PID      int
	Reloaded bool
	// Error says why not, where it was not.
	Error string
}
