// Package announce tells a cluster what became of its objects: Events on objects
// that were left out, or have a fault, or are good again; and the addresses at
// which Ingresses are served, in their status.
//
// What is to be said follows from the last compile and the last publish, and is
// decided by pure functions: [Events], [Addresses] and the ledgers of what was
// said. Only the leader says it, at a bounded rate, and nothing twice: an Event
// has a name made of what it says, so that another leader, or the same one after
// a restart, meets it and leaves it; a status is written only if it differs.
// Objects that come from files, which have no UID, are told nothing.
//
// Notes are messages of package diag, which hold no values of Secrets.
//
// # Decisions
//
// An Ingress has our addresses in its status while the published snapshot has a line of
// it, also one that keeps it closed: a program that makes DNS records of statuses would
// otherwise take a host away for a typing error that answers 503 now and is mended in a
// minute. Statuses are written by server-side apply. To take ours away, nothing is
// applied: the API server then removes what only we had written, however long ago, and
// leaves what another controller has written since. A status that is overwritten three times
// is reported, and left alone for an hour.
package announce
