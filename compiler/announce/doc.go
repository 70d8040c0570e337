// Package announce reports to a cluster what became of its objects: Events on objects that were left
// out, or have a fault, or are good again; the addresses at which Ingresses are served, in their
// status; the status of Gateways and their routes; and the Services of Gateways that have addresses of their own.
//
// Pure functions decide what to report from the last compile and the last publish: [Events],
// [Addresses] and the ledgers of what was written. Only the leader writes, at a bounded rate, and
// nothing twice: the name of an Event is made of its content, so that another leader, or the same one
// after a restart, finds the Event and leaves it; a status is written only if it differs. Objects from
// files, which have no UID, get neither.
//
// Notes are messages of package diag, which hold no values of Secrets.
//
// # Decisions
//
// An Ingress has our addresses in its status while the published snapshot has a line of it, also one
// that keeps it closed: a program that makes DNS records of statuses would otherwise remove a host for
// a typing error that answers 503 now and is mended in a minute. Statuses are written by server-side
// apply. To remove our addresses, nothing is applied: the API server then removes what only we had
// written, however long ago, and leaves what another controller has written since. A status that is
// overwritten three times is reported, and left alone for an hour.
package announce
