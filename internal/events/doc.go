// Package events says things of the objects of a cluster, as Events on them, at a
// bounded rate and nothing twice: an Event has a name made of what it says, so that
// another process, or the same one after a restart, meets it and leaves it. What goes on
// holding is said again before the API server forgets it.
//
// What is said is for its callers to decide. [Recorder] writes it, while its process is
// the one that leads; [Loop] is how it writes, and is there for others that write in the
// same manner.
package events
