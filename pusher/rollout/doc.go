// Package rollout decides which instance gets which snapshot, and when.
//
// It is one pure function, [Policy.Step]. From the state, which is stored, and an
// observation of the store and the fleet, it computes the next state and the pushes to
// begin now. It reads no clock and starts nothing. The caller
//
//   - stores the new state before it begins the pushes,
//   - reports the end of each push once, as a [Result], and begins no second push for an instance
//     before that,
//   - calls [State.Resume] after a restart, since no push of the old process is under way any more, and
//   - reports about an instance only what it asked after the instance's last push ended.
//
// In return, a snapshot that is not yet known to be good reaches the fleet in waves, the
// canary first. A wave begins when everything that was pushed before has stayed healthy for
// the soak time. After a failure only the last good snapshot is pushed, to the instances
// that were touched, the last touched first. An instance that is down never blocks the
// others, and is brought up to date when it returns. A hold stops the fleet where it is,
// but neither an undo nor the first push to an instance that joins. Reloads keep to a
// budget, apart from those of an undo. In a blackout no wave begins, unless a person
// ordered it. The [Sample] of each instance with the snapshot is compared with what it was
// before and with those of the others; if the others fail as well, the rollout pauses. Step
// returns what it waits for, as [Wait].
//
// # Decisions
//
// Once more than half of the fleet has a snapshot, its rollout is finished before that of a
// newer one begins. Otherwise a newer snapshot that fails on the canary would take
// everybody back to what ran before both. An order of a person, by a pin or an override,
// does not wait.
//
// An undo waits neither for the budget nor for a blackout, but counts for the budget: what
// is broken is worse than what is busy. An order of a person, by a pin or an override, does
// not wait for a blackout. It waits for the budget, since that protects the machines.
//
// Old workers are counted by how long they may live, not by what they do, since the
// Dataplane API asks only the newest worker. The hard-stop-after of a worker's
// configuration says when it is gone at the latest, so the count is never too low.
//
// The gate compares twice, with the worker before and with the others at the same time. If
// an instance is only worse than before, a Service may have failed for all: then the
// rollout pauses. If it is only worse than the others, it may always have been. Once all
// instances have the snapshot, those that held well with it for a wave stand in for the
// others.
//
// Evidence must point at the snapshot. Whatever a tenant or a machine does during a soak
// happens in some rollout. So each finding is compared with what the snapshot changed
// (pusher/core/compare.go: sections with their defaults, global, files and routes), with what
// was known before, and with the others. Findings that this excludes are rarely signs of a
// bad snapshot. A test rolls snapshots out among tenants that come and flap.
//
// After a failure, snapshots below the failed one are not tried. If the fleet is at fault,
// each older snapshot would fail in turn. A rejection names its fleet and the snapshot that
// the fleet went back to, so that every reader of the channel decides the same.
//
// Statistics are summed over frontends. Those of each backend would find a small Service
// that a snapshot breaks. But they would have to be kept for each instance and backend, and
// most have too few requests to judge by. A backend without a server up is found by its
// name.
//
// The state holds what was counted from, but not what was last read. The start of a count
// is written once for each instance and wave; samples are read again after a restart.
//
// During a blackout an instance that was touched is finished. If its push failed it may run
// anything, and to leave it so for a night would be worse.
package rollout
