// Package channel decides which snapshot should run.
//
// A [Channel] is the small mutable object of a store in which people and pushers say what
// they want: pin, override, pause, approve, reject. A [View] is the channel together with
// the IDs of all snapshots of the store. [Want] makes a [Decision] of a view and the time.
// [Previous] decides what a rollback goes to. If anything is missing, unreadable, unsigned
// or rewound, the decision is to keep what runs.
//
// [Retain] says which snapshots a store may delete. [Named] says which ones it must keep
// because a channel names them. With a [RewoundError] a store says that it, or its channel,
// is older than what the reader has seen of it.
//
// Everything here is a pure function of values. The time is an argument.
//
// # Decisions
//
// A pause comes before everything else, an override and a pin too: a person who pauses
// wants nothing to change. Endpoints and certificates still follow the cluster.
package channel
