// Package rollout decides which instance gets which snapshot, and when.
//
// It is one pure function, [Policy.Step]: from the state, which is stored, and
// an observation of the store and the fleet, it computes the next state and the
// pushes to begin now. It reads no clock and starts nothing. The caller
//
//   - stores the new state before it begins the pushes,
//   - reports the end of each push once, as a [Result], and keeps to one push
//     for each instance,
//   - after a restart calls [State.Resume], for no push of the old process is
//     under way any more, and
//   - sees to it that what it reports about an instance was asked after the
//     instance's last push ended.
//
// In return, a snapshot that is not yet known to be good reaches the fleet in
// waves, the canary first; a wave begins when everything that was pushed before
// has stayed healthy for the soak time; after a failure nothing more is pushed
// but the last good snapshot, to the instances that were touched, last touched
// first. An instance that is down never blocks the others and is brought up to
// date when it returns. A hold stops the fleet where it is; it does not stop an
// undo, nor an instance that joins from getting what the fleet runs. Reloads keep to a
// budget, apart from those of an undo; in a blackout no wave begins, unless a person
// ordered it. What has the snapshot is compared with what was before and with the
// others, by the [Sample] of each; if these fail as well, the rollout pauses. Step says
// what it waits for, as [Wait].
//
// # Decisions
//
// Past half of the fleet, a rollout is finished before a newer snapshot's begins.
// Otherwise a newer one that fails on the canary takes everybody back to what ran before
// both. What a person orders, by a pin or an override, does not wait.
//
// An undo waits for no budget and no blackout, and counts all the same: what is broken is
// worse than what is busy. A person's order, by a pin or an override, waits for no
// blackout; for the budget it does, since that protects the machines.
//
// Old workers are counted by what they may do, not by what they do: the Dataplane API
// asks the newest worker only. hard-stop-after of the configuration that a worker ran
// says when it is gone at the latest, so that the count is never too low.
//
// The gate compares twice, with the worker before and with the others at the same time.
// Worse than before alone may be a Service that broke for all: then the rollout pauses.
// Worse than the others alone may be an instance that always was. Once all have the
// snapshot, those that held well with it for a wave stand in for the others.
//
// Evidence must point at the snapshot. Whatever a tenant or a machine does in a soak
// happens to some rollout, so that each finding is held against what the snapshot changed
// (pusher/compare.go: sections with their defaults, global, files and routes), what was
// known before, and the others. What is left out is less often found in a bad snapshot
// than it would be in a good one. A test rolls snapshots out among tenants that come and
// flap.
//
// Nothing below a failure is tried. If the fleet is at fault, each older snapshot would
// fail in turn. A rejection says which fleet it is of, and what that went back to, so
// that every reader of the channel decides the same.
//
// Statistics are summed over frontends. Those of each backend would find a small Service
// that a snapshot breaks, but would have to be kept for each instance and backend, and
// most have too few requests to judge by. A backend without a server up is found by name.
//
// What counts is in the state, what was last read is not. Where counting began is written
// once for each instance and wave; the samples come anew after a restart.
//
// A blackout leaves an instance that was touched to be finished. One whose push did not
// come through may run anything; to leave it so for a night is the worse choice.
package rollout
