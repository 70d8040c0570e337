// Package templates holds the templates that hapsnap ships, embedded. They are
// Go's text/template, one file per section of haproxy.cfg:
//
//	haproxy/*.cfg   the sections of haproxy.cfg, in the order of their names
//	maps/*          one map each
//	files/*         one file each, such as crt-lists
//	partials/*.cfg  parts that several sections include by name
//	extend/*.cfg    empty parts, there to be filled by an overlay
//
// A template that begins with {{- /* each backend */ -}} (or host, or
// certificate, listener, bind, or connections: a backend of whole connections) is
// executed once for each of them, any other one once. Maps and files can be made
// for each listener and bind, whose name then follows their own: maps/sni_https.map. What
// templates can read and call is documented in compiler/render.
//
// # Decisions
//
// Hosts and paths are map entries, and the host decides first. Two look-ups find the host
// that owns the request, two more the route. Paths are compared as they were sent;
// nothing is normalised.
//
// Ports of Gateways are binds with a name of the same two frontends, and the name leads every key
// of the maps: so no look-up of one port finds what is for another, and no frontend is rendered for
// each of them (partials/binds.cfg). Their wildcards span labels: one look-up for each number of
// labels, the most first. A Host header cannot bring the name of a bind: what follows a ":" is cut
// off, and each name has one. Without Gateways none of these lines is there.
//
// A port of a Gateway for whole connections has a frontend of its own (partials/gateway-connections.cfg), whose map
// says where each host leads, or "*" where none is asked for: to a backend, to a split, or to another
// frontend where TLS ends. Hosts, routes and weights are entries. Where HTTPS is on such a port, the frontend
// of all HTTPS is behind it, with the same name of its bind.
//
// Options of a route are carried by a backend of its own,
// <namespace>_<service>_<port>.<ingress>. http-request rules stand in backend sections
// just as well, so options cost other routes nothing, and look-ups stay two maps whatever
// the number of options. Ingresses without options share a backend.
//
// Where one port both passes TLS on and ends it, a frontend looks at the first bytes and
// hands the second kind on to another one, through an abstract socket and with the
// client's address in a PROXY header. Nothing else costs that detour. Processes in the
// same network namespace could connect to the socket and claim any address: they are
// trusted, as is whoever shares HAProxy's pod. A reload passes the socket to the new
// worker like any other, and no connection is lost. When the last host that is passed on
// goes, the socket goes with it, and connections that have just come and are still to say
// for which host are closed: a socket that is there for all, always, would be too much to
// trust for that.
//
// A Lua filter counts bodies that announce no length (files/hapsnap.lua), for backends
// with a limit only: rules see a body before it streams or not at all, and HAProxy has no
// limit of its own. A filter ends a request by an error of its script alone, which
// HAProxy answers with 400 and logs; a rule makes that 413.
//
// Headers that proxies own are removed by two expressions of names, and made anew
// (templates/partials/forwarded.cfg): a line for each name costs the same, and makes the
// configuration longer. The table of docs/reference/headers.md is the test.
// X-Forwarded-Port is that of the header Host, since HAProxy's own port is another one
// outside of a container.
//
// Paths are compared in a normal form, which a script makes of those that are not in it
// (templates/partials/path.cfg, compiler/routing/normalpath.go). One expression finds
// that out, within a microsecond; the script takes 4 µs for most others, and a
// millisecond for the worst of 8 KiB. HAProxy's normalize-uri is experimental in 2.6 to
// 3.4, changes the URI and its query, which would have to be put back, encodes nothing,
// and does not know a % that encodes nothing; converters (regsub, url_dec, url_enc)
// cannot remove any number of .., and fail or cut off what outgrows a buffer. Characters
// that may stand in a path are decoded, not only those that are unreserved: to servers
// /%40x is /@x, whatever the RFC says.
//
// A path of which nobody can say what a server makes of it is refused where something is
// protected (routing.Guard), by namespace: only routes of the same namespace lead to the
// same servers, so that a guest on a host has nobody else's requests refused. A path that
// climbs out of what is protected (/admin/../x) is one, since not every server resolves
// it.
//
// What has no path, or another one for HAProxy than for its server, is refused before all that
// (templates/partials/request-line.cfg), on every host: CONNECT, which would make a tunnel of the
// connection, and targets that RFC 9112 does not have. The path alone does not show the latter: HAProxy
// finds one behind the "?" of a URL.
//
// An authentication service is asked by a Lua script (files/hapsnap.lua), which takes the
// servers of a backend of their own, so that endpoints are joined late here too, and
// connects to them itself. A detour through a listener of our own would be subject to
// maxconn, and stand still exactly when all connections are taken by requests that wait
// for it. A script that fails leaves a variable unset, and the rule after it refuses the
// request: HAProxy alone would let it pass. HAProxy logs these requests as <HTTPCLIENT>,
// and reserves no file descriptors for them: with all of maxconn taken, a few may be
// refused with 503. Reserving more would let an annotation raise what the machine's limit
// must allow. A request costs about a quarter of a millisecond more, and half of the
// throughput or more.
//
// A mirror gets its copies by the same script, and by a listener of our own within HAProxy
// (templates/haproxy/46-mirror.cfg), so that slots, TLS and balance of its backend hold. A
// task writes the copy to a socket: the client HTTP of Lua knows five methods, keeps whole
// answers in memory and logs each request. Copies under way are bounded by thread, for each
// mirror and for all, and by a tenth of the connections of the process, since a mirror that
// hangs would otherwise take those of clients. A body counts as whole only if its announced
// length is there when rules are run: HAProxy says of a chunked one that what is there is
// all. Waiting for the rest would hold up the request. What is not copied is counted by the
// listener's answers of 4xx; none is 5xx, since the pusher would take that for a failed
// request of a client.
//
// Error pages are bodies, with a limit below HAProxy's buffer. http-error in the defaults
// serves those of HAProxy's own errors; rules of ours that answer by themselves name the
// file (the template function answer), for http-error knows fewer statuses and drops
// headers such as Retry-After. A page beyond the buffer would pass haproxy -c and be
// answered 500.
//
// An instance is drained by a server. The only server of the backend hapsnap_ready stands
// for the instance: its state can be set through every version of the Dataplane API and
// on the socket, and shows in the statistics; variables of the process would need
// HAProxy's experimental mode. It ends with a reload: the pusher only keeps the states of
// servers that are slots. HAProxy's own soft stop needs no rule: it closes the status
// listener with all others.
//
// /ready counts backends in rules, one line for each backend and only if a share is
// configured, at most once a second: at 10,000 backends that takes 5 to 10 ms. Lua would
// save the lines, but not every HAProxy has it, and its first count takes 100 ms during
// which nothing else is served.
//
// HTTP/3 is written as HAProxy with a plain OpenSSL needs it, with limited-quic: a
// snapshot cannot depend on how an instance was built, and builds for other libraries
// ignore it. HAProxy before 2.9 does not know it.
//
// TLS policies leave the groups of the key exchange to OpenSSL, whose newer versions add
// those that withstand quantum computers; naming one that an older OpenSSL lacks would
// keep HAProxy from starting.
//
// Connections are limited by fd-hard-limit, not by a fixed maxconn, unless the
// configuration sets one. HAProxy then takes what the machine's limit of open files
// allows; with a fixed maxconn a machine with a lower limit refuses the reload, which
// haproxy -c does not see.
package templates

import (
	"embed"
)

// FS holds the shipped templates.
//
//go:embed haproxy maps files partials extend
var FS embed.FS

// ReadyBackend is the backend of haproxy.cfg that represents the instance itself.
const ReadyBackend = "hapsnap_ready"
