// Package ingress translates Ingress objects into the model of package routing.
//
// Translation is a pure function of the objects. A conflict has one rule, the
// oldest object wins, then namespace/name, and the loser hears of it; an
// object that cannot be translated gets a diagnostic and harms only itself.
//
// It has two phases. The claims of an Ingress (claims.go, demands.go) are what it asks for,
// whatever other Ingresses there are: hosts, routes, backends with their options, certificates,
// and what is to be said of it. They are a pure function of the Ingress, of the Services that it
// names, of its class and of a part of the configuration; Secrets and ConfigMaps are only named.
// The merge (merge.go, routes.go, hosts.go, canary.go, connections.go) takes the claims of all,
// oldest first, decides who gets what, looks up what is named, and makes the model. It reads no
// Ingress.
//
// # Decisions
//
// Claims are remembered for the next translation, and looked for by the place of the object's value
// in memory. The version of an object would not do: the Ingress of an admission review that updates
// one has the version of that one, and other content. What else claims were made of is compared
// before they are used: a source hands out nothing that is not.
//
// What depends on others is left to the merge, though it may be the claims' largest part that is
// then not used: aliases, passthrough, the form in which paths of a host are compared, limits of a
// namespace, whether clients of a host can be asked for certificates. A backend of an Ingress is
// made with its options in the claims, and the merge closes it where these cannot be had.
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
