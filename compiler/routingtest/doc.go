// Package routingtest tests the table of routing semantics. The compiler compiles manifests, a real HAProxy
// runs the result in front of echo servers, and the tests send requests over HTTP/1.0, HTTP/1.1, HTTP/2 and
// TLS. A case has the number of its row.
package routingtest
