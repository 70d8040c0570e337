// Package routing is the model of what should be routed where: hosts, routes,
// backends and certificates as typed values, whatever API said so.
//
// It knows the forms of names, hosts and paths in the model, and which parts of a model
// belong together. The package of an API, such as package ingress, decides what its objects
// mean. The templates decide how the model becomes HAProxy configuration.
//
// # Decisions
//
// If more than host and path decides, maps lead to a choice, whose routes package decision turns into
// tables. Weights of an Ingress are those of a backend's targets, so that sessions and limits see
// one backend, and another weight keeps the shape. Weights of a split are those of backends, each of
// which may have its own filters.
//
// The hosts of a port with its own hosts are in the same list as the shared hosts of all other ports,
// and name that port. So code for all hosts handles them too, and the shared hosts did not change.
//
// TLS requests that reach HAProxy for a host with passthrough get 421, and so do those over HTTP/3,
// which is never passed through. Otherwise, if one of our certificates covers the host, HAProxy
// would answer clients that should reach the Service itself.
//
// Redirects to HTTPS and preflight requests come before authentication: passwords must not be
// sent unencrypted, and browsers send preflight requests without one. HAProxy answers both, and
// they reach no endpoint.
//
// HAProxy asks for client certificates by host, and checks them for each request. The
// crt-list asks when a client connects, by SNI. Backends check again, for three reasons: a
// connection may carry requests for other hosts (421); a session made for one host can be
// resumed for another; and Ingresses that share a host may have different settings. In the
// last case clients without a certificate may connect, and get 403 if a route requires one.
// HAProxy cannot tell which authority a resumed session was checked against, so it keeps no
// sessions if there are several authorities.
//
// A wildcard's line of the crt-list excludes the hosts below it that have another
// certificate or another check of clients. HAProxy looks for the exact name and the
// wildcard together, and prefers the better key to the better match.
//
// Paths that are regular expressions are lines of two files, not entries of maps: a worker
// appends new entries, but the order of expressions matters. The subject is host, longest
// prefix and path, so that one look-up decides which prefixes an expression comes before. An
// expression never comes before a prefix that is as long as its own literal beginning, or
// before a prefix of another namespace, so that no pattern gets around a protected path.
// Requests of hosts without expressions look up one key.
package routing
