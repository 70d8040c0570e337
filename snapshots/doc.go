// Package snapshots is the contract between the compiler and the pusher: what
// a snapshot is, how it is named and digested, how it becomes what one HAProxy
// instance gets, and which snapshot of a channel should run.
//
// It promises that a snapshot is read whole and verified or not at all, that
// its digest depends on nothing but its content, and that [Bind] is a pure
// function. Everything here is a value or a function on values; the stores
// that keep snapshots are in sub-packages, and hold to one contract suite.
package snapshots
