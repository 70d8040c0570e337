// Package discovery finds the instances of a fleet among the pods of a cluster, with
// the credentials that Secrets hold for them.
//
// A pod is an instance as soon as it has an address, ready or not: an instance turns
// ready only by what it is pushed. One that terminates is draining: it belongs to the fleet no
// more, and is followed only so that it gets endpoints. A pod that has ended is no instance any more.
//
// What was found is held while the API server is out of reach, or while a Secret is
// missing or cannot be used: instances never leave for what could not be read.
//
// # Decisions
//
// Credentials are renewed in the client of an instance, which stays the same instance:
// what is known of it holds, work under way goes on, and a call that was refused for what
// was renewed meanwhile is made once more, since a 401 did nothing.
//
// A pod is an instance before it is ready, for only a push makes it ready, and until it
// terminates. What is remembered of an instance is remembered with the UID of its pod, so
// that another of its name begins anew. Jobs end when their pod begins to terminate, for a
// reload would keep it from ending; from then on there are changes at run time alone. These
// end with the pod: its address may be somebody else's in a moment.
package discovery
