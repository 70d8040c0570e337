// Package options knows the annotations below hapsnap.dev/: their names, what
// may be written in them, and which filters and policies they ask for.
//
// The compiler, the page that lists the options, and the tests that try to smuggle
// something through each of them all read one registry, [All]. Each value is parsed
// into a type where it enters. Text without a type of its own, such as a header's value,
// may only have characters that cannot end a line. Package routing decides where the
// result belongs.
//
// # Decisions
//
// A list of networks becomes one file for all options that name it. It is read whole or not
// at all: a wrong line closes the routes, since leaving the line out of a deny list would let
// somebody in. An option can name a list of another namespace only if the configuration
// shares it. Otherwise a tenant could probe others through HAProxy.
//
// Names of ExternalName Services are structure; HAProxy resolves them. The compiler writes
// a server line with the name, and HAProxy looks it up after it has started (init-addr
// last,none). So neither a start nor a check waits for a name server, and requests get 503
// for the milliseconds until the first answer. Names that lead into the cluster or to the
// machine are refused unless they are listed. The compiler cannot see where a foreign name
// server sends HAProxy, so externalNames can refuse all names, or list domains.
//
// Annotations open only the TCP ports that the administrator lists. A port that another
// process uses on HAProxy's machine fails every reload, and neither the compiler nor
// haproxy -c can see that. All namespaces share the ports, too. Ports of the other
// listeners are always refused.
//
// satisfy: any applies only to the options of its own object. Otherwise an Ingress could
// take the auth-basic of its Service away with a list of all addresses. If both objects
// have such options, the routes answer 503.
//
// A fallback belongs to its route: fallback-service makes a backend with other endpoints
// and with the filters and the protection of the route, as a canary does. It is not used
// while the route is closed.
//
// A client's name is compared as a whole, in a subject with one common name. The expression
// ends with \z and not $, which also matches before a line break. ingress-nginx looks for a
// match anywhere in the subject, such as in an organisation called "x,CN=admin".
package options
