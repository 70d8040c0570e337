// Package channel decides which snapshot should run.
//
// A [Channel] is the small mutable object of a store in which people and pushers say
// what they want: pin, override, pause, approve, reject. A [View] is that channel with
// the IDs of all snapshots of the store. [Want] turns a view and the time into a
// [Decision], and [Previous] into what a rollback goes to. Where something is missing,
// unreadable, unsigned or rewound, the decision is to hold what runs.
//
// [Retain] says which snapshots a store may delete, and [Named] which ones it must
// keep because a channel names them. [RewoundError] is how a store says that it, or its
// channel, is behind what the reader has seen of it.
//
// Everything here is a pure function of values. The time is an argument.
//
// # Decisions
//
// A pause beats everything, an override and a pin too: whoever pauses wants nothing to
// change. Endpoints and certificates still follow.
package channel
