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
package push
