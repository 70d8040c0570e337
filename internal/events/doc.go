// Package events writes Events on the objects of a cluster, at a bounded rate and none twice: the name
// of an Event is made of its content, so that another process, or the same one after a restart, finds
// the Event and leaves it. An Event that still holds is renewed before the API server forgets it.
//
// Callers decide what is said. [Recorder] writes it, while its process is the leader. [Loop] is how it
// writes, for use by others that write in the same manner.
//
// # Decisions
//
// The name of an Event is made of its content. client-go's recorder takes two faults of one object for
// one, forgets what it has said when the process ends, and drops what exceeds its queue. Here the
// object, the reason and the note give the name: the next leader, or the same one after a restart,
// finds the Event and leaves it. An Event that still holds is renewed each half hour, before the API
// server forgets it; one that comes and goes is renewed at most every five minutes; and there are never
// more than five Events a second.
package events
