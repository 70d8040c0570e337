// Package options knows the annotations below hapsnap.dev/: their names, what
// may be written in them, and which filters and policies they ask for.
//
// There is one registry, [All], which is read by the compiler, by the document
// that lists the options, and by the tests that try to smuggle something through
// each of them. Every value is parsed into a type where it enters; text that
// has no type of its own, such as a header's value, is held to characters that
// cannot end a line. Package routing says where the result belongs.
//
// # Decisions
//
// A list of networks is a file, one for all that name it, and read whole or not at all: a
// line that is wrong closes the routes, since leaving it out would let somebody in
// through a deny list. What another namespace holds can be named only if the
// configuration shares it, or a tenant could probe others through HAProxy.
//
// Names of ExternalName Services are structure, their addresses are HAProxy's. The
// compiler writes a server line with the name, and HAProxy looks it up when it has
// started (init-addr last,none): neither a start nor a check waits for a name server, at
// the price of a 503 for the milliseconds that the first answer takes. Names that lead
// into the cluster or to the machine are refused unless they are listed; where a name
// server of somebody else's sends HAProxy cannot be seen here, so that externalNames can
// refuse all or list domains.
//
// Annotations open no TCP port unless the administrator lists it. A port that something
// else uses beside HAProxy fails every reload, and neither the compiler nor haproxy -c
// can see that; a port is also shared by all namespaces. Those of the other listeners are
// refused in any case.
//
// One way in is enough only for who asked for all of them: satisfy: any is about the options of
// its own object. An Ingress that could say it of its Service's auth-basic would take that away
// with a list of all addresses. Mixed, the routes answer 503.
//
// A fallback is the same route: fallback-service makes a backend with the filters and the
// protection of the route and other endpoints, as a canary has, and is not taken where the route
// is closed.
//
// A client's name is compared as a whole, in a subject that has one common name, with \z and not
// $, which matches before a line break too. ingress-nginx looks for a match anywhere in the
// subject, which an organisation called "x,CN=admin" is.
package options
