// Package pusher brings the instances of a fleet to run the snapshot that should
// run, and keeps them on today's endpoints and certificates.
//
// One goroutine, the loop of runner.go, holds everything that is known. It takes events,
// which are values (events.go, ends.go), and decides in turns; engine.turn is the whole of a
// turn:
//
//   - observe: the store's snapshots and its channel, the live endpoints and
//     certificates, and what the worker of each instance says it runs;
//   - want: which snapshot should run (channel.Want);
//   - step: which instance is to get which snapshot now (package rollout);
//   - save: the state of the step, before anything of it is begun (saves.go);
//   - act: pushes, and changes of servers and certificates at run time, which
//     bypass the rollout (package push) and wait for no save.
//
// What a turn decides to have done is collected as effects, which are values too
// (effects.go, package instance). After the turn the runner starts each in a goroutine of its own, and
// its end comes back as an event. An instance that hangs holds up nobody but itself, and a
// state store that hangs holds up rollouts only. What people see of a turn is a value, too
// (status.go), of which package observe makes the status, metrics, Events and log lines.
//
// Nothing is ever pushed because something was not found. A store that is gone,
// empty or corrupt, a missing pin, an unreadable directory: each of them holds
// what runs, and is said in the log and in the status.
package pusher
