// Package bind joins a snapshot with live data to what one HAProxy instance gets.
//
// [Bind] takes a snapshot and [Inputs] (live data, slots, and the directories of the
// instance) and returns a [Bound]: the text of haproxy.cfg, the files beside it, and the
// servers that the running worker should have. It is a pure function: the same inputs
// give the same bytes.
//
// The parts, in the order in which they are used:
//
//   - [Directives] and [UsersDirectives] read the comments of haproxy.cfg that say where
//     servers and users belong, and [Needs] which Secrets a snapshot takes something from;
//   - [AssignSlots] gives each endpoint a slot, which it keeps for as long as it lives;
//   - [Servers] gives the slots their names and weights;
//   - [Bind] writes all of it; a [Binder] does the same, and remembers which certificates
//     HAProxy can load;
//   - [Classify] says what it takes to bring a worker from one Bound to another. Two of
//     one [Bound].Shape differ in what can be changed at run time.
//
// Packages pem and htpasswd read what is in Secrets. They know nothing of snapshots.
package bind
