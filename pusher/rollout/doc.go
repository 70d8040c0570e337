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
package rollout
