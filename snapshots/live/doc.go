// Package live translates Kubernetes objects into the live data that snapshots are bound to:
// EndpointSlices into endpoints, Secrets into certificates, authorities, users and values.
//
// Its functions are pure, and their results do not depend on the order of the objects. Callers read the
// objects, from a cluster or from files, and decide what to do about a Secret that is broken.
//
// # Decisions
//
// Hashes that take long are refused or reported. HAProxy checks a password on the thread of its
// connections at every request, and tries every hash when it loads the configuration: a hash of 10 ms
// gets a warning; one of 500 ms, or a list of 5 s, is refused.
package live
