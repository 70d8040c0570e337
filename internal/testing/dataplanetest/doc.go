// Package dataplanetest is a Dataplane API v3 for tests and demonstrations, in front of a real HAProxy. [Start]
// makes an instance for a test, [New] one without a test.
//
// Only the outside of the API is imitated. The API's own library parses and writes the configuration, so its
// normal form and its silent losses are the real ones. haproxy -c decides what is valid. A real HAProxy in
// master-worker mode loads the configuration, answers for its servers, maps and certificates, and restarts from
// the disk. As with the real API, the memory of the API, the disk and the worker may hold three different
// things.
//
// [Instance.Inject] makes requests fail in the ways in which they really fail. [Instance.Restart],
// [Instance.StopAPI], [Instance.KillHAProxy] and similar methods end one of the two processes and start it
// again. [Instance.EditConfig] and [Instance.ReloadHAProxy] do what a person might do. [Instance.Requests]
// returns the requests. Processes end with [Instance.Close], and with the process that started them if that is
// killed.
//
// # What it was compared with
//
// The contract suite of the package dataplane passes on the double in front of HAProxy 2.6.12 and 3.0.11, and
// on real APIs: v3.2.5, for which [V32] stands, with HAProxy 3.0.11 and 3.2.0; v3.4.2, for which [V34] stands,
// with HAProxy 3.2.0; and v3.3.0, which answers like v3.2.5, with 3.0.11. It also runs with a real API if the
// variable DATAPLANEAPI names one or one is on PATH; HAPROXY then names a HAProxy that it accepts. [Options]
// with a Program run a real API in place of the double, behind a proxy that records requests and cuts, delays
// or answers them as Inject says. Tests of the pusher, and stories with the programs, also passed with v3.2.5
// and v3.4.2 in place of the double: rollouts, endpoints, certificates, pins, restarts, lost replies.
//
// From 3.4 on schema errors are 400, the API checks the password before the path, servers have weights and take
// addresses at run time, entries of certificate lists with names are added, a deleted certificate is removed
// from the worker if possible, and entries that could hold another command of HAProxy are refused.
//
// # What is known to differ
//
//   - The real API reloads nothing before HAProxy 2.7. The double does: as the
//     master of 2.6 answers before anything has happened, it watches show proc for
//     the outcome and takes the startup log from what HAProxy wrote.
//   - V34 has the normal form of 3.2's library.
//   - Of structured configuration there are the names of backends, their servers
//     with a few of their many fields, and the addresses of a frontend's binds.
//     Other calls, and those on ACLs, stick tables, CA files and the like, are 404.
//   - Requests are not checked against the API's schema, other than as the contract
//     has it.
//   - Runtime info has some of its fields; statistics have every column of show
//     stat, where the API drops those that it does not know.
//   - There are no backups of former versions, as by default, and failed reloads
//     are remembered for ever.
//   - The real API has a reload do for a certificate whose PEM has an empty line, as
//     3.2 does for one without a line end at its end, and 3.4 for one with a semicolon:
//     they end what is sent to HAProxy.
//   - A disk that is full during a post leaves no open transaction behind; there,
//     it leaves an empty one.
//   - A forced reload waits for one that is under way. There, it does so only if
//     another is due.
package dataplanetest
