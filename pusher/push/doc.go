// Package push brings one instance to run one bound snapshot, and keeps its
// running worker on today's servers and certificates without a reload.
//
// Everything here can be called again at any point, also after a call was cut
// short: each call looks first, does only what is missing, and looks again. In
// particular a configuration is never posted because an answer was lost; what
// became of the post is found out.
//
// That a snapshot was applied is proved by the worker, which names it, and by the
// file on disk. A 2xx of the API proves nothing.
//
// The functions call the API and decide for one instance only. Which instance
// gets what, and when, is the caller's; so is that no two calls for one instance
// overlap.
//
// # Decisions
//
// An endpoint's change costs what its Service has: slots and servers of its backends are
// assigned anew and the others copied. From version 3.4 of the API it takes two calls:
// what the worker is, and the change; three for a new endpoint, which is said to be up:
// what the slot's checks found where the one before was would keep it down for seconds.
// The answer to a change has the server as the API then reads it from the worker, and is
// the proof; what somebody else does to other servers is found when these are inspected.
// The snapshot is bound as a whole only where its text is posted. Among 1,000 backends
// two calls are 2.5 times the price of the one that makes the change alone
// (BenchmarkEndpoint in pusher). The version of the API is asked again only after a
// change fell short, which its answer tells.
package push
