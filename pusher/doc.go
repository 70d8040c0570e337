// Package pusher brings the instances of a fleet to run the snapshot that should
// run, and keeps them on today's endpoints and certificates.
//
// It runs a [core.Machine], which knows everything and decides everything. One goroutine, the
// loop of runner.go, gives it events: what the store, the fleet's file, the pods, the cluster and
// the instances say, and how effects ended. Each step of the machine returns effects, and the
// runner starts each in a goroutine of its own; its end comes back as an event (services.go,
// package instance). An instance that hangs holds up nobody but itself, and a state store that
// hangs holds up rollouts only.
//
// After each step the runner hands what people are to hear to package observe. With an event log it
// also writes down what the machine heard and decided (eventlog.go), so that the run can be
// replayed.
package pusher
