// Package difference compares two snapshots: file by file for people, and as the
// pusher would see a fleet go from one to the other, with the line that decides
// whether HAProxy has to be reloaded.
//
// It is a pure function of both sides. It knows no fleet: where endpoints outgrow
// their slots is judged as if the fleet had begun with the first of the sides.
// What is in Secrets is not compared.
//
// # Decisions
//
// compiler diff says reload where the shapes differ, as bind.Classify does for bound
// configurations, and names the first line by which they do. Without an instance some is
// not known: endpoints are counted from those of the first side, and another Service in
// the place of one is a reload, though it may have as many slots.
package difference
