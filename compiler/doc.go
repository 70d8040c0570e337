// Package compiler turns what a cluster, or a directory of manifests, says
// about ingress into snapshots. [Compile] is one pass: inputs -> model ->
// artifact -> validated draft. [Run] keeps a store up to date with directories
// that change.
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
// A corrupt newest snapshot is followed by the next revision, in all stores. The guard
// against mass losses then compares with the newest that can be read
// (compiler/publish.go). In git this is for a tip that has the tag of a snapshot. Any
// other commit on the branch was made by a person, who decides.
//
// A configuration that changes is on trial until it has compiled. It is judged by itself
// first, by the parser and by HAProxy; what only templates make wrong of it shows in the
// compile, and then the compiler goes back to the one before, too. It is read when it has
// been quiet for a moment, for half of a file can look like a whole one. The compiler
// stays ready: the one before works.
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
