// Package live translates Kubernetes objects into the live data that snapshots
// are bound to: EndpointSlices into endpoints, Secrets into certificates,
// authorities, users and values.
//
// Its functions are pure, and their results do not depend on the order of the
// objects. Reading the objects, from a cluster or from files, is left to the
// caller, and so is what to do about a Secret that is broken.
//
// # Decisions
//
// Hashes that take long are refused or reported. HAProxy checks a password on the thread
// of its connections at every request, and tries every hash when it loads the
// configuration: 10 ms are worth a warning, 500 ms for one or 5 s for a list are too
// much.
package live
