// Package routingtest holds the table of routing semantics as tests: manifests
// are compiled by the real compiler, bound to echo servers, run by a real
// HAProxy, and asked with real requests over HTTP/1.0, HTTP/1.1, HTTP/2 and TLS.
// Each case bears the number of its row.
package routingtest
