// Package events says things of the objects of a cluster, as Events on them, at a
// bounded rate and nothing twice: an Event has a name made of what it says, so that
// another process, or the same one after a restart, meets it and leaves it. What goes on
// holding is said again before the API server forgets it.
//
// What is said is for its callers to decide. [Recorder] writes it, while its process is
// the one that leads; [Loop] is how it writes, and is there for others that write in the
// same manner.
//
// # Decisions
//
// An Event has a name made of what it says. client-go's recorder takes two faults of one
// object for one, forgets with the process what it has said, and drops what exceeds its
// queue. Here the object, the reason and the note give the name: the next leader, or the
// same one after a restart, meets the Event that is there and leaves it. What still holds
// is said again each half hour, before the API server forgets it; what comes and goes at
// most every five minutes; and never more than five Events a second.
package events
