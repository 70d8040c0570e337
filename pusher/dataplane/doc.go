// Package dataplane talks to one HAProxy instance through its Dataplane API v3,
// in the versions 3.2 to 3.4.
//
// It is a thin shell: one method for each call, each a single HTTP exchange. It
// never retries (but what was refused for credentials that were renewed under way),
// never chooses a version and never sends skip_version; what to do
// after a conflict, a lost answer or a failed reload is the caller's decision.
// What it promises is that the caller can tell these apart: each failure is an
// [*Error] that matches exactly one of the Err values of this package, and for a
// write it says whether the write may have happened.
//
// A success proves what the API did, not what HAProxy runs. Callers read back
// [Client.RuntimeInfo], [Client.Servers] or [Client.RuntimeCertificate]; what
// [Client.SetServer] returns was read from the worker after the change.
//
// What the API does with a request, measured on real ones, is reproduced in the
// package dataplanetest; one contract suite runs against both.
package dataplane
