// Package observe says what people see of a pusher: its status, metrics, log lines,
// Kubernetes Events, notifications and spans.
//
// The machine of package core decides, and this package tells. What it knows at the end of a turn is
// a [View], a plain value; [View.Status] makes a status of it, as package report has it. What
// happens in between is told as facts. Nothing here is asked by a decision, and nothing of it changes what an
// instance gets.
package observe
