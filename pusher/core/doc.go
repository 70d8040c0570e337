// Package core decides what the pusher does. A [Machine] knows everything; [Machine.Step] takes
// events, which are values, and returns effects, which are values too. It reads no clock, draws no
// lots, starts nothing and waits for nothing. It has no store, no client, no logger and no context:
// package pusher has, and carries out the effects. A test holds that.
//
// Each step has five parts:
//
//   - observe: take what the store and its channel say, the live endpoints and certificates, and
//     what the worker of each instance says it runs;
//   - want: decide which snapshot should run (channel.Want);
//   - step: decide which instance gets which snapshot now (package rollout);
//   - save: have the state saved before any push of the step begins (saving.go);
//   - act: begin pushes, and changes of servers and certificates at run time. These changes
//     bypass the rollout and wait for no save (jobs.go).
//
// What people should know is a value as well: facts, and a view (reporting.go). Package observe
// makes the status, metrics, Events and log lines of them.
//
// The machine never pushes because something was not found. If the store is gone, empty or corrupt,
// a pin is missing, or a directory cannot be read, the instances keep what they run, and the log and
// the status say why.
package core
