// Package difference compares two snapshots: file by file for people, and as the pusher would see a
// fleet go from one to the other, with the line that decides whether HAProxy has to be reloaded.
//
// It is a pure function of both sides, and knows no fleet: it counts slots as if the fleet had begun
// with the first side. It does not compare what is in Secrets.
//
// # Decisions
//
// compiler diff reports a reload if the shapes differ, as bind.Classify does for bound configurations,
// and names the first line that differs. Without an instance some things are not known: the package
// counts slots from the endpoints of the first side, and reports a reload if one Service replaces
// another, though both may have as many slots.
package difference
