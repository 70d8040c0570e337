// Package gateway says what the objects of the Gateway API mean, as a part of a model of package
// routing, and what their status is to say. It is pure: the order of the inputs takes no part.
//
// The claims of a route (claims.go) are what it asks for by itself and by what it refers to; they are a pure
// function, and the next translation uses them again (memo.go). Then it is attached (routes.go), and what that
// brings is merged: binds with their listeners (gateways.go) and backends (backends.go).
//
// Package attach decides who may attach to what, package layout which request gets to which match.
//
// # Decisions
//
// What is not supported is never ignored: a rule with it is dropped, and the route says so. A route
// none of whose rules is left is not accepted. A rule whose backend cannot be had answers 500.
//
// A rule with filters has backends of its own, one for each prefix that a filter replaces: after a
// fall-through the key that HAProxy found is not what the route matched.
package gateway
