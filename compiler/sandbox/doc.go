// Package sandbox runs a compiled configuration in a HAProxy process of its own. It reports
// which server of which backend answers a request, or that HAProxy answers it.
//
// A sandbox cannot be reached from another machine, and reaches none. HAProxy listens on
// sockets in a directory that only its user can enter. Every server line leads to a stand-in
// server on the loopback. Log targets and statistics sockets are removed. Maps, rules,
// certificates, cookies and Lua work as they do where the snapshot is pushed.
//
// Every Service has one endpoint, which is up and answers every request with 200, over
// HTTP/1.1, HTTP/2, TLS or FastCGI. So does every service that authenticates requests. A
// test's requests use HTTP/1.1, with or without TLS, and can come from any address.
//
// # Decisions
//
// A sandbox rewrites the text of the configuration that will be pushed. Compiling again for
// other addresses would test another configuration, and templates may write bind and server
// lines of their own. Each bind line becomes a socket that takes a PROXY header, so that a
// test chooses the address of the client and no port has to be free. Each server line leads
// to a stand-in, those of templates too, so that no request leaves the machine. Nothing that
// decides about a request is added or changed.
package sandbox
