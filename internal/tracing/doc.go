// Package tracing sends a program's spans to the collector that the standard environment variables of
// OpenTelemetry name, or nowhere if they name none. It also writes and reads the context of a trace as
// text, for a trace that goes on in another program.
//
// A collector that is slow or gone delays nothing and fails nothing: spans are dropped, which is logged
// now and then.
package tracing
