// Package cluster follows the EndpointSlices and Secrets of a Kubernetes cluster
// that snapshots name, and says what changed: one cache for all instances.
//
// What is watched follows from the snapshots in use ([Plan]): the EndpointSlices of
// their namespaces, and each Secret by its name. What may be watched by nothing else
// than the rules made of the same plan ([Rules]). Objects are trimmed to what is made
// of them.
//
// It promises that what cannot be reached any more is held as it was: only the API
// server says that an object is gone. It tells what was deleted from what was merely
// missing in a list ([Change.Unsaid]). Which of that to believe, and what to do about
// a change, or about a Secret that is broken, is left to the caller.
package cluster
