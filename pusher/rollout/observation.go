package rollout

import (
	"time"

	"github.com/hapsnap/hapsnap/snapshots"
)

// Observation is what the pusher knows of the store and the fleet.
type Observation struct {
	// Want is the snapshot that the channel says should run. It is zero if the channel says
	// nothing usable.
	Want snapshots.ID
	// Intent says why, and distinguishes two wishes for one snapshot: because it is the
	// newest, or because of a pin made at some time.
	Intent string
	// MayWait is set if the snapshot is wanted because it is the newest, not by a person's
	// order. A rollout that is past half of the fleet is then finished first.
	MayWait bool
	// Wishes are the snapshots that people named in the channel, whether they count now or
	// not.
	Wishes []Wish
	// Hold stops the fleet where it is: paused, the store gone, nothing found.
	Hold bool
	// Channel is set when the channel was read; Rejected then lists the short
	// digests that it rejects.
	Channel  bool
	Rejected []string
	// Promotion and Abort are the last orders that people gave about a rollout, if they
	// gave any.
	Promotion, Abort Order
	// Instances are the instances of the fleet, sorted by name.
	Instances []Seen
	// Results are the pushes that ended since the last step.
	Results []Result
	// Backends are the backends of Good, by name, compared with the snapshot Compared. Nil
	// means not known.
	Backends map[string]Backend
	Compared snapshots.ID
	// Moved is when the live endpoints of a backend changed, for backends where that was
	// recently.
	Moved map[string]time.Time
	// Reloads counts the workers that the caller itself replaced since the last step
	// without pushing a snapshot, by instance.
	Reloads map[string]int
}

// Wish is a snapshot that a person named to be run, with its [Observation.Intent].
type Wish struct {
	Snapshot snapshots.ID
	Intent   string
}

// Order is a person's order about the rollout of a snapshot. The zero value is none.
type Order struct {
	Snapshot snapshots.ID
	// Mark distinguishes orders about the same snapshot.
	Mark string
	// Full makes a promotion start all remaining waves.
	Full bool
	// Says names who gave the order, and why.
	Says string
}

// Seen is what is known of one instance.
type Seen struct {
	Name, Zone string
	// Reachable is set if its worker answered.
	Reachable bool
	// Running is the snapshot that the worker names, zero if it names none of ours.
	Running snapshots.ID
	// PID is the worker's. Started is when it began by the caller's clock, zero if that is
	// not known. After a container was restarted another worker may have the same PID.
	PID     int
	Started time.Time
	// Busy is set while the caller changes something in the running worker, so
	// that no push can begin.
	Busy bool
	// HardStopAfter is how long the worker may live after it was replaced. It is zero if
	// its configuration does not say.
	HardStopAfter time.Duration
	// Sample is what its worker had counted when it was last asked.
	Sample Sample
	// WithoutReload are the snapshots that its worker can be brought to without a reload.
	WithoutReload []snapshots.ID
	// Foreign is set if its worker names Running but was started from another
	// configuration.
	Foreign bool
	// Stale is set when Running, joined with today's live data, needs a reload.
	Stale bool
	// Died is when the worker was last seen to be replaced for an unknown reason, zero for
	// never.
	Died time.Time
}

// Backend is what is known of a backend of the last good snapshot.
type Backend struct {
	// Changed is set if the compared snapshot changes the backend's servers: in its own
	// lines, or in lines that it inherits.
	Changed bool
	// Reached is set if the compared snapshot sends it other requests, or treats them
	// differently.
	Reached bool
	// Check is the longest time for which a dead server still counts as up.
	Check time.Duration
}

// Outcome is how a push ended.
type Outcome string

// The outcomes.
const (
	// Applied means that the worker names the snapshot.
	Applied Outcome = "applied"
	// Refused means that the snapshot cannot run on the instance: HAProxy refused it, or
	// did not start with it. The instance runs what it ran before.
	Refused Outcome = "refused"
	// Faulty means that the snapshot cannot run on the instance because of the instance:
	// its paths, ports, limits, permissions or disk. Another instance may take it.
	Faulty Outcome = "faulty"
	// Trouble means that the push to the instance did not succeed, which says nothing about
	// the snapshot.
	Trouble Outcome = "trouble"
	// NotBegun means that the push was not begun, since something that the step relied on
	// had changed. The next step decides again, and the push does not count as tried.
	NotBegun Outcome = "not begun"
)

// Result is the end of a push.
type Result struct {
	Instance string
	Snapshot snapshots.ID
	Outcome  Outcome
	// PID is the worker after a push that was applied. Reloaded is set if it is not the
	// worker from before.
	PID      int
	Reloaded bool
	// Error says why the push was not applied.
	Error string
}
