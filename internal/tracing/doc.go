// Package tracing says where a program's spans go: nowhere, unless the standard
// environment variables of OpenTelemetry name a collector. It writes and reads the
// context of a trace as text, too, for a trace that goes on in another program.
//
// A collector that is slow or gone delays nothing and fails nothing: spans are
// dropped, which is logged now and then.
package tracing
