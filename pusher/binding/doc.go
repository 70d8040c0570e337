// Package binding joins the snapshots in use with live data for each layout of instances, and
// caches the parts that do not change with every endpoint.
//
// [Sources] takes endpoints and Secrets from a directory or a cluster, and decides which of them
// to believe. It does not believe that many endpoints were lost at once. It refuses addresses that
// no Service may have. While a Secret is broken, it keeps its last usable certificate. [Bindings]
// gives the endpoints slots, and computes the node name that the worker of an instance should
// have, which shows whether a reload is needed. [Cache] holds the snapshots that were read.
//
// The package reads no clock, starts no goroutine and calls nobody, apart from [WatchObjects],
// which reads the directory. It knows no instance, and not which snapshot should run.
package binding
