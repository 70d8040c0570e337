// Package pusher brings the instances of a fleet to run the snapshot that should
// run, and keeps them on today's endpoints and certificates.
//
// One goroutine holds everything that is known and decides, in turns; see
// engine.turn, which is the whole of it:
//
//   - observe: the store's snapshots and its channel, the live endpoints and
//     certificates, and what the worker of each instance says it runs;
//   - want: which snapshot should run (channel.Want);
//   - step: which instance is to get which snapshot now (package rollout);
//   - save: the state, before anything is done that it speaks of;
//   - act: pushes, and changes of servers and certificates at run time, which
//     bypass the rollout (package push).
//
// Whatever may be slow runs in goroutines of its own and reports back as an
// event: reading the store, asking an instance, pushing to one. An instance that
// hangs holds up nobody but itself.
//
// Nothing is ever pushed because something was not found. A store that is gone,
// empty or corrupt, a missing pin, an unreadable directory: each of them holds
// what runs, and is said in the log and in the status.
package pusher
