// The demo shows hapsnap's main job on one machine as a short story: the real
// programs, real HAProxy processes, and a double of the Dataplane API, or a real one, in front
// of each of them. Run it with `make demo`; `make demo KEEP=1` leaves all of it
// running until it is interrupted.
//
// Everything listens on loopback addresses of its own (127.0.10.0/24 and
// 127.0.20.0/24), and everything is written below one temporary directory,
// which is removed at the end.
package main
