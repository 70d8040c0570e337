// Package tracingtest is a collector of traces for tests: it takes what programs
// send with OTLP over HTTP, and shows it as a tree.
package tracingtest
