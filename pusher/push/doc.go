// Package push brings one instance to run one bound snapshot, and keeps its running worker
// on today's servers and certificates without a reload.
//
// Every function can be called again at any point, also after a call was interrupted: each
// looks first, does only what is missing, and looks again. In particular it never posts a
// configuration again because an answer was lost; it finds out what became of the post.
//
// The worker, which names its snapshot, and the file on disk prove that a snapshot was
// applied. A 2xx of the API proves nothing.
//
// The functions call the API and decide for one instance only. The caller decides which
// instance gets what, and when. The caller also makes sure that no two calls for one
// instance overlap.
//
// # Decisions
//
// A change of an endpoint costs only what its Service has: the slots and servers of its
// backends are assigned again, and the others are copied. From version 3.4 of the API on it
// takes two calls: one asks what the worker is, the other changes it. A new endpoint takes
// a third call, which sets its health to up. Otherwise the state of the checks of the
// slot's previous endpoint would keep it down for seconds. The answer to a change has the
// server as the API then reads it from the worker, and that is the proof. Inspections find
// what somebody else does to other servers. The snapshot is bound as a whole only when its
// text is posted. Among 1,000 backends two calls take 2.5 times as long as the call that
// makes the change alone (BenchmarkEndpoint in pusher/core). The version of the API is asked for
// again only after a change fell short, as the answer shows.
package push
