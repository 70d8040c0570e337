// Package dataplanetest is a Dataplane API v3 for tests and demonstrations, in
// front of a real HAProxy. [Start] makes an instance for a test, [New] one without.
//
// Of the API only the outside is made up. The configuration is taken apart and put
// together by the API's own library, so that its normal form and what it loses
// without a word are the real ones; haproxy -c decides what is valid; and a real
// HAProxy in master-worker mode loads it, answers for its servers, maps and
// certificates, and restarts from what is on disk. What the memory of the API, the
// disk and the worker hold are three things here, as they are there.
//
// [Instance.Inject] makes requests fail in the ways in which they do fail;
// [Instance.Restart], [Instance.StopAPI], [Instance.KillHAProxy] and their like end
// one of the two processes and begin it again; [Instance.EditConfig] and
// [Instance.ReloadHAProxy] are the hand of a person; [Instance.Requests] tells what was
// asked. Processes end with [Instance.Close], and with the process that started
// them if that is killed.
//
// # What it was compared with
//
// The contract suite of the package dataplane passes on the double before HAProxy
// 2.6.12 and 3.0.11, and on real APIs: v3.2.5, which is what [V32] stands for, before
// HAProxy 3.0.11 and 3.2.0; v3.4.2, which is what [V34] stands for, before HAProxy 3.2.0;
// and v3.3.0, which answers like v3.2.5, before 3.0.11. It also runs where a real
// one is named by the variable DATAPLANEAPI or is on PATH, with HAPROXY naming a
// HAProxy that it takes. [Options] with a Program have a real one run in the place of
// the double, behind a proxy that keeps the record of requests and cuts, delays or
// answers them as Inject says. Tests of the pusher, and stories with the programs, also passed
// with v3.2.5 and v3.4.2 in the place of the double: rollouts, endpoints, certificates,
// pins, restarts, lost replies.
//
// From 3.4 on schema errors are 400, paths are unknown only to those who are known,
// servers have weights and take addresses at run time, entries of certificate lists
// with names are added, a deleted certificate is taken from the worker if that is
// possible, and what could hold another command of HAProxy's is refused.
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
