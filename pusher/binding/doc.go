// Package binding joins the snapshots in use with live data for each layout of instances, and
// remembers what of that does not change with every endpoint.
//
// [Sources] takes what a directory or a cluster says of endpoints and Secrets, and decides what
// of it is believed: losses of many endpoints at once are not, addresses that no Service may have
// are refused, and the last usable certificate of a Secret stays while the Secret is broken.
// [Bindings] gives the endpoints slots, and says what the worker of an instance should name,
// which is what tells whether a reload is needed. [Cache] knows which snapshots are at hand.
//
// Nothing here reads a clock, starts a goroutine or calls anybody, apart from [WatchObjects],
// which reads the directory. Nothing here knows an instance, or which snapshot should run.
package binding
