// Package ingress translates Ingress objects into the model of package routing.
//
// Translation is a pure function of the objects. If two objects claim the same thing, the older one
// gets it; of two with the same age, the first by namespace/name. The other one gets a finding. An
// object that cannot be translated gets a finding and harms only itself.
//
// Translation has two phases. The claims of an Ingress (claims.go, demands.go) are what it asks for,
// whatever other Ingresses there are: hosts, routes, backends with their options, certificates,
// and findings. They are a pure function of the Ingress, of the Services that it names, of its class
// and of a part of the configuration; they name Secrets and ConfigMaps, and do not read them. The
// merge (merge.go) takes the claims of all Ingresses, oldest first, and decides who gets what. It
// reads no Ingress. Types of their own collect the results: hosts with their owners and routes
// (hosts.go, routes.go), backends and what their options name, and canaries (backends.go),
// ports for connections (connections.go), and certificates by server name (certificates.go).
//
// # Decisions
//
// The next translation reuses the claims of unchanged objects, and finds them by the address of the
// object's value in memory. The version of an object is no key: the Ingress of an admission review has
// the version of the one that it updates, and other content. Before claims are reused, everything else
// that they were made of is compared; a source gives access to nothing else.
//
// The merge decides everything that depends on other objects: aliases, passthrough, the form in which
// paths of a host are compared, limits of a namespace, whether clients of a host can be asked for
// certificates. The claims hold the backends of an Ingress with their options, and the merge closes a
// backend whose options cannot be had.
//
// A canary uses the backends of the Ingress whose routes it shares, with other targets. So it cannot
// lack the protection of that Ingress. Options that only the canary or its Service has are refused.
//
// The session cookie has its own name for each Service port. Browsers send the cookies of a host with
// all of its paths, so that under one name the Services of a host would overwrite each other's
// sessions.
//
// The oldest Ingress with a host decides what happens to the host's TLS connections, since the host is
// all that HAProxy knows of a request before TLS ends. A host whose TLS ends at HAProxy keeps that
// even if a wildcard above it is passed through.
package ingress
