// Package difference compares two snapshots: file by file for people, and as the
// pusher would see a fleet go from one to the other, with the line that decides
// whether HAProxy has to be reloaded.
//
// It is a pure function of both sides. It knows no fleet: where endpoints outgrow
// their slots is judged as if the fleet had begun with the first of the sides.
// What is in Secrets is not compared.
package difference
