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
package compiler
