// Package preflight looks at an instance before anything is pushed to it, and says
// what is wrong with it and how to mend it: who is reached, with which versions and
// directories, whether its API reaches HAProxy, may write, and will survive a push.
//
// [Gather] asks, [Judge] decides on what was found, and [Check] does both for a fleet.
// Nothing that runs is changed: a Gather that may write uploads files that no
// configuration names and deletes them, has texts validated that are not kept, and opens
// a transaction that it drops.
package preflight
