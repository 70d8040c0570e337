// Package core decides what the pusher does. A [Machine] knows everything; [Machine.Step] takes
// events, which are values, and returns effects, which are values too. It reads no clock, draws no
// lots, starts nothing and waits for nothing. It has no store, no client, no logger and no context:
// package pusher has, and carries out the effects. A test holds that.
//
// What each step does:
//
//   - observe: what the store and its channel say, the live endpoints and certificates, and what
//     the worker of each instance says it runs;
//   - want: which snapshot should run (channel.Want);
//   - step: which instance is to get which snapshot now (package rollout);
//   - save: the state of the step, before anything of it is begun (saving.go);
//   - act: pushes, and changes of servers and certificates at run time, which bypass the rollout
//     (jobs.go) and wait for no save.
//
// What people are to hear is a value as well: facts, and a view (reporting.go), of which package
// observe makes the status, metrics, Events and log lines.
//
// Nothing is ever pushed because something was not found. A store that is gone, empty or corrupt, a
// missing pin, an unreadable directory: each of them holds what runs, and is said in the log and in
// the status.
package core
