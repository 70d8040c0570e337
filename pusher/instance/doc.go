// Package instance carries out effects on HAProxy instances. It decides nothing.
//
// An [Effect] and an [Event] are values that name an instance by its [Ref]. [Connections] has the
// clients of the instances, the fence of the term, and a record of what was uploaded.
// [Connections.Job] returns a job for each effect, which sends one event when it has ended. The
// job of [Join] probes the instance again and again, and sends an event for each answer.
//
// Each event says how its effect ended, and what is known by then of the instance's haproxy.cfg and
// worker: [Known].
package instance
