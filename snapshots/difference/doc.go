// Package difference compares two snapshots: file by file for people, and as the pusher would see a
// fleet go from one to the other, with the line that decides whether HAProxy has to be reloaded.
//
// It is a pure function of both sides, and knows no fleet: it counts slots as if the fleet had begun
// with the first side. It does not compare what is in Secrets.
// # Decisions
//
// compiler diff says reload where the shapes differ, as bind.Classify does for bound configurations,
// and names the first line by which they do. Some things are not known without an instance: slots are
// counted from the endpoints of the first side, and another Service in the place of one is a reload,
// though it may have as many slots.
package difference
