// Package ingress translates Ingress objects into the model of package routing.
//
// Translation is a pure function of the objects. Where two objects claim the same, the older one gets
// it, then the first by namespace/name, and the other gets a finding. An object that cannot be
// translated gets a finding and harms only itself.
//
// It has two phases. The claims of an Ingress (claims.go, demands.go) are what it asks for,
// whatever other Ingresses there are: hosts, routes, backends with their options, certificates,
// and findings. They are a pure function of the Ingress, of the Services that it names, of its class
// and of a part of the configuration; they only name Secrets and ConfigMaps. The merge (merge.go)
// takes the claims of all, oldest first, and decides who gets what. It reads no Ingress. What it
// collects is in types of their own: hosts with their owners and routes (hosts.go, routes.go), backends
// and what their options name (backends.go), canaries (canary.go), ports for connections
// (connections.go), and certificates by server name (servernames.go).
//
// # Decisions
//
// The next translation uses claims again, and finds them by the address of the object's value in
// memory. The version of an object would not do: the Ingress of an admission review has the version of
// the one that it updates, and other content. Before claims are used again, everything else that they
// were made of is compared; a source gives access to nothing else.
//
// The merge decides everything that depends on other objects: aliases, passthrough, the form in which
// paths of a host are compared, limits of a namespace, whether clients of a host can be asked for
// certificates. The claims hold the backends of an Ingress with their options, and the merge closes a
// backend whose options cannot be had.
//
// A canary has the backends of the Ingress whose routes it shares, with other targets. So
// nothing that protects the other can be forgotten. Options that the canary or its
// Service has alone are refused rather than guessed at.
//
// The cookie of sessions has a name of its own for each Service port. Cookies of a host
// are sent with all of its paths: under one name the Services of a host would take each
// other's sessions away.
//
// The oldest Ingress with a host says what becomes of its TLS connections, for before TLS
// ends a host is all that can be told of a request. A host that is not passed on stays so
// though a wildcard is.
package ingress
