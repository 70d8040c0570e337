// Package routing is the model of what should be routed where: hosts, routes,
// backends and certificates as typed values, whatever API said so.
//
// It knows the forms that names, hosts and paths have in the model, and which parts of a
// model belong together. What the objects of an API mean is left to the package of that API,
// such as package ingress; how the model becomes HAProxy configuration is left to the
// templates.
//
// # Decisions
//
// Where more than host and path decides, maps lead to a choice, whose routes package decision makes
// tables of. Weights of an Ingress are those of a backend's targets, so that sessions and limits see
// one backend, and another weight keeps the shape. Weights of a split are those of backends, each of
// which may have filters of its own.
//
// Hosts of a port of its own are in the same list as those that all other ports share, and name
// it: so what is done for all hosts is done for them too, and the shared ones are what they were.
//
// Requests over TLS for a host that is passed on get 421, over HTTP/3 too, which is never
// passed on: where a certificate of ours covers the host, clients would otherwise be
// served by HAProxy what they are to get from the Service itself.
//
// Redirects to HTTPS and preflight requests come before authentication: no password is
// asked for in the clear, and browsers send preflight requests without one. Both are
// answered by HAProxy and reach no endpoint.
//
// Clients are asked for certificates by host, and checked by request. The crt-list asks
// when a client connects, by SNI. Backends look again, since a connection may carry
// requests for other hosts (421), a session made for one host can be resumed for another,
// and Ingresses that share a host need not agree: then those who show no certificate may
// connect, and get 403 where one is required. HAProxy cannot tell which authority a
// resumed session was checked against, so that with several of them it keeps no sessions.
//
// A wildcard's line of the crt-list leaves out the hosts below it that have another
// certificate or another check of clients. HAProxy looks for the exact name and the
// wildcard together, and prefers the better key to the better match.
//
// Paths that are regular expressions are lines of two files, and no entries of maps: a
// worker appends entries, and the order counts. The subject is host, longest prefix and
// path, so that one look-up decides which prefixes an expression comes before. It never
// comes before a prefix that is as long as its own literal beginning, nor before one of
// another namespace: a pattern is no way around a protected path. Requests of hosts
// without expressions look up one key.
package routing
