// Package statestore keeps the state of a pusher in a Secret of a cluster, for one pusher
// at a time, and the fallback certificate with its key in a second one, so that who may
// read the state reads no key.
//
// A pusher that takes the state raises its term, and writes only what follows on what it read
// or wrote itself, by the Secret's resourceVersion. So a pusher whose place another has
// taken cannot save anything any more, and learns that from its next attempt, however
// long it was paused. A write whose answer was lost is told from one by somebody else by
// the term and by the name of the holder. The term only grows while the Secret is there;
// see [Secret.Raise] for what is left of earlier ones.
//
// What is in the state is up to package pusher, which also keeps it in files.
package statestore
