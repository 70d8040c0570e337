// Package observe reports what a pusher does: its status, metrics, log lines, Kubernetes Events,
// notifications and spans.
//
// The machine of package core decides; this package reports. At the end of a turn the machine gives
// it a [View], a plain value, of which [View.Status] makes a status as package report has it. Facts
// report what happens within a turn. No decision depends on this package, and nothing in it changes
// what an instance gets.
package observe
