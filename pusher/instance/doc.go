// Package instance carries out what was decided to be done on instances of HAProxy.
//
// An [Effect] and an [Event] are values, which name an instance by its [Ref]. [Connections] has
// what it takes to reach the instances: clients, the fence of the term, and what was uploaded.
// [Connections.Job] returns a job for each effect, which sends one event when it has ended. The
// job of [Join] asks the instance again and again, and sends an event for each answer.
//
// Each event says, besides how its effect ended, what is known by then of the instance's
// haproxy.cfg and of its worker: [Known]. Nothing is decided here.
package instance
