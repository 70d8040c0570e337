// Package compiler turns what a cluster, or a directory of manifests, says
// about ingress into snapshots. [Compile] is one pass: inputs -> model ->
// artifact -> validated draft. [Judge] says what would come of an object that
// somebody is about to write. Package compiler/controller keeps a store up to date.
//
// An object that cannot be translated or rendered, or whose lines HAProxy
// refuses, is left out and reported; everything else is published. If the
// templates or the configuration are at fault, nothing is.
//
// The steps are in packages of their own: inputs, routing, render and
// validate. Keeping snapshots is the business of the stores, rolling them out
// that of the pusher, which this package knows nothing of.
//
// # Decisions
//
// There is no last good version of an object. The output would depend on what was there
// before, and not be the same after a restart, or in CI. What protects users of a bad
// object is that it is refused before it is written, by the admission webhook or in CI,
// and that its routes are closed where it protects something; what protects all others is
// that it alone is left out, and the guard against mass losses.
//
// The rounds of leaving out are bounded for each namespace (compiler/drop.go). HAProxy
// stops at the first error in a rule of requests, so that each faulty object takes a
// check of everything. After eight rounds the rest of the namespace is looked through by
// halves, in 32 checks; what these do not clear is left out. The tenant pays, not
// everybody.
package compiler
