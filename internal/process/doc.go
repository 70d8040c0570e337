// Package process is the plumbing that both programs need and that has
// nothing to do with HAProxy: signals and exit codes, logs, the memory limit,
// and the HTTP server for health, metrics and status.
//
// It knows neither the compiler nor the pusher.
package process
