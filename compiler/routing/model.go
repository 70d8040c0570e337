package routing

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"net/netip"
	"slices"
	"strconv"
	"strings"

	"k8s.io/apimachinery/pkg/types"

	"github.com/hapsnap/hapsnap/compiler/diag"
	"github.com/hapsnap/hapsnap/compiler/policy"
	"github.com/hapsnap/hapsnap/internal/objectname"
	"github.com/hapsnap/hapsnap/snapshots"
)

// Model is the routing of one compile: what Ingresses and the routes of Gateways mean, in the same form for both. Every
// list is sorted, so that the same objects give the same Model in whatever order they came.
type Model struct {
	// Binds are the ports that have hosts of their own, by name. All other ports share the
	// hosts without a Bind.
	Binds        []Bind
	Hosts        []Host        // by Key
	Held         []Held        // by name, none that is among Hosts
	Closed       []diag.Object // objects that are left out, and whose routes answer 503
	Backends     []Backend     // by name
	Splits       []Split       // by name
	Certificates []Certificate // by file
	Userlists    []Userlist    // by name
	NetworkLists []NetworkList // by name
	// Countries is the list of networks by country, nil if nothing asks for it.
	Countries  *CountryList
	ErrorPages []ErrorPage // by status
	// Authorities are those of ConfigMaps, which are no secret, by file.
	Authorities []Authority
	// ServerNames are the TLS hosts that need more than to be one of a
	// Certificate's Hosts, by name.
	ServerNames []ServerName
	// DefaultCertificate is the file of the certificate that is served if no other fits; "" means the fallback
	// certificate.
	DefaultCertificate string
	// Default is the name of the backend for requests that no rule matches;
	// "" answers them with 404.
	Default       string
	DefaultOrigin Origin
	// Listeners are the ports that route whole connections, or that have hosts of their own, by name.
	// ConnectionBackends are the backends of whole connections, by name, without filters. Ports that only have requests
	// are not among the Listeners: they share the Hosts above.
	Listeners          []Listener
	ConnectionBackends []Backend
	// Asked says what was looked up by name, whether it was there or not.
	Asked Asked
}

// Asked names the objects that a translation looked for, sorted. The model does not depend on others.
type Asked struct {
	Secrets, ConfigMaps []types.NamespacedName
}

// And returns the names of both.
func (a Asked) And(b Asked) Asked {
	return Asked{Secrets: objectname.Union(a.Secrets, b.Secrets), ConfigMaps: objectname.Union(a.ConfigMaps, b.ConfigMaps)}
}

// Within reports whether all names are among those of b.
func (a Asked) Within(b Asked) bool {
	return objectname.Within(a.Secrets, b.Secrets) && objectname.Within(a.ConfigMaps, b.ConfigMaps)
}

// Host is one virtual host. Name is lower case: "" for rules without a host,
// ".foo.com" for the wildcard "*.foo.com" (one label), else a host name. The
// most specific host that matches a request owns it, whether it has routes or
// not. Origin is the oldest object that names the host.
//
// A host of a Bind differs in three things. Its wildcards span labels. Next is the Key of the
// host that has the requests for whose path it has no route, or "". And the last route of a
// path may have conditions: requests for which none hold are answered 404.
type Host struct {
	// Bind is the name of a [Bind], or "" for all ports that have no hosts of their own.
	Bind string
	Name string
	Next string
	// Listener is the part of an HTTPS bind that the host belongs to. Connections for hosts of another part cannot carry
	// requests for it. It is "" for other hosts.
	Listener string
	// Form is the one in which paths are compared; those of Routes are in it.
	Form PathForm
	// Routes are sorted by path, exact before prefix. Of several for one path
	// the first one whose conditions hold takes the request; the last one has
	// none.
	Routes []Route
	// Closed says that requests that no route matches are answered 404, and not by the
	// default backend, which is of another namespace.
	Closed bool
	// Expressions are those of Routes, in the order in which they are tried.
	Expressions []ExpressionRoute
	// Guards are by namespace.
	Guards []Guard
	Origin Origin
}

// Key names the host in maps, among those of all binds.
func (h Host) Key() string {
	if h.Bind == "" {
		return h.Name
	}
	return h.Bind + "|" + h.Name
}

// Bind is a port whose requests are only for the hosts that name it.
type Bind struct {
	Name      string // such as "shop/web:80"
	Port      int    // to which clients connect
	Socket    int    // that HAProxy binds
	Addresses []string
	Protocol  Protocol
	// ServerNames are what clients get over HTTPS, by host. That of the host "" is for clients that ask
	// for no other one.
	ServerNames []ServerName
	// Clients is nil where clients are not asked for certificates.
	Clients *ClientCheck
	// Behind says that the connections come by the [Listener] of the same Bind, which looks at what TLS
	// asks for.
	Behind  bool
	Origins []Origin
}

// File names the bind in the names of files. No part of its name has an underscore.
func (b Bind) File() string { return bindFile(b.Name) }

func bindFile(name string) string {
	return shortStem(strings.NewReplacer("/", "_", ":", "_", ".", "_").Replace(name))
}

// Door names the socket by which the connections come that the [Listener] of the same Bind hands on.
func (b Bind) Door() string { return door("requests", b.Name) }

// door names a socket within HAProxy. Its name is plain, and not too long for one.
func door(what, bind string) string {
	sum := sha256.Sum256([]byte(bind))
	return what + "_" + hex.EncodeToString(sum[:8])
}

// Split shares requests out over backends. Name begins with a "%", which that of no backend
// does. Origin is the object that the shares are of.
type Split struct {
	Name   string
	Shares []Share
	Origin Origin
}

// Share is the part of the requests that a backend gets: its Weight in the sum of all, above 0.
type Share struct {
	Backend string
	Weight  int
}

// Held is a host that has no routes, but is known, so that no wildcard and no rule without a host answers for it. Name is as
// in a [Host].
type Held struct {
	Name   string
	Closed bool   // as in a Host
	Origin Origin // zero if the configuration says so
}

// PathType says how the path of a Match is compared with that of a request, which is
// brought into the Form of the host before.
type PathType string

// The path types. Prefix compares element-wise: /foo matches /foo and /foo/x,
// not /foobar.
const (
	Exact  PathType = "Exact"
	Prefix PathType = "Prefix"
)

// PathMatch says which paths of a host a route takes.
type PathMatch struct {
	Type PathType
	// Path begins with "/". A Prefix is kept without its trailing slash,
	// so that the root is "".
	Path string
}

// Compare orders matches by path, exact before prefix.
func (m PathMatch) Compare(o PathMatch) int {
	return cmp.Or(cmp.Compare(m.Path, o.Path), cmp.Compare(m.Type, o.Type))
}

// Match says which requests of a host a route takes: those for its paths for
// which all of its conditions hold.
type Match struct {
	PathMatch
	Conditions []Condition
}

// Condition is something that a request is to have besides its path: Value is
// that of the part of it that has the Name.
type Condition struct {
	Of          Part
	Name, Value string // no Name with Method
}

// Part is a part of a request.
type Part string

// The parts of a request that conditions are about. Values are compared as a whole, with case. If a header appears several
// times, the last one counts; a HeaderPattern has to match any of them.
const (
	Method Part = "Method"
	Header Part = "Header"
	// HeaderPattern is about the beginning of a header, of which Value is an expression.
	HeaderPattern Part = "HeaderPattern"
	Cookie        Part = "Cookie"
	Query         Part = "Query"
	// QueryPattern is about the beginning of a parameter, and PathPattern about that of the path,
	// in the form of the host.
	QueryPattern Part = "QueryPattern"
	PathPattern  Part = "PathPattern"
)

// Route sends what matches through filters to a backend.
type Route struct {
	Match   Match
	Filters []policy.Filter // in their order
	Backend string          // the Name of a Backend, or of a Split
	// Yields says that while the backend has no usable server, requests go on
	// to the next route of the path.
	Yields bool
	// Protects says that the route keeps requests out, which has its host guarded.
	Protects bool
	// Access is the same for routes of a host that let in the same requests, whatever their path is. It is "" if that is
	// not known.
	Access string
	Origin Origin
}

// ReplacesPrefix reports whether a filter replaces what the route matched, so
// that it has to be known what that was.
func (r Route) ReplacesPrefix() bool { return ReplacesPrefix(r.Filters) }

// ReplacesPrefix reports whether a filter replaces what a route matched.
func ReplacesPrefix(filters []policy.Filter) bool {
	for _, f := range filters {
		if rewrite, ok := f.(policy.RewritePath); ok && rewrite.Pattern == "" {
			return true
		}
	}
	return false
}

// Backend is one HAProxy backend. Without Targets it answers every request with 503, as for a Service that does not exist.
//
// It has the filters and the protection of the routes that lead to it, so that they cost other routes no time. Routes that
// differ in them lead to different backends.
type Backend struct {
	Name    string
	Targets []Target
	// Protection and Upstream are nil where nothing was asked for.
	Protection *policy.Protection
	// Snippet is written behind Protection and before Filters.
	Snippet  []SnippetLine
	Filters  []policy.Filter
	Upstream *policy.Upstream
	// Prefixes are what the routes match that lead here, each once, sorted, if
	// a filter replaces it. The root is "".
	Prefixes []string
	// Expressions are those of routes whose path is one.
	Expressions []BackendExpression
	// Origins are the objects that asked for it, sorted. Messages name the first if they can name only one.
	Origins []Origin
}

// RedirectsToTLS reports whether no request in the clear is served.
func (b Backend) RedirectsToTLS() bool {
	return slices.ContainsFunc(b.Filters, func(f policy.Filter) bool { return f.Kind() == policy.HTTPSRedirect{}.Kind() })
}

// Target is a Service port that a backend balances over. Weights are relative
// to those of the other targets of the backend.
type Target struct {
	Service snapshots.ServicePort
	// Name is what HAProxy looks up by itself to find the servers, for a Service
	// that has a name in place of endpoints; else nil.
	Name   *ExternalName
	Weight int
}

// ExternalName is a host whose addresses Kubernetes does not know.
type ExternalName struct {
	Host string // in lower case
	Port int
}

// Origin is the object and the place in it that something came from.
type Origin struct {
	Object   diag.Object
	Position diag.Position
	// Field is the field of the object, such as spec.rules[0].host; empty for the whole object. Objects from a cluster
	// have it, but no Position.
	Field string
}

// Compare orders origins by object, then by position.
func (o Origin) Compare(p Origin) int {
	return cmp.Or(o.Object.Compare(p.Object), o.Position.Compare(p.Position), cmp.Compare(o.Field, p.Field))
}

// Routes reports whether the object leads requests or connections to Services.
func (o Origin) Routes() bool {
	switch o.Object.Kind {
	case "Ingress", "HTTPRoute", "GRPCRoute", "TLSRoute", "TCPRoute":
		return true
	}
	return false
}

// Listener is a port whose connections are routed as wholes, by the host that
// TLS asks for, without a look at requests.
//
// One of a Gateway, which has a Bind, differs in four things. Wildcards span labels. A route may lead to a
// [Split]. Its routes have no Certificate: ServerNames say which clients get which. And connections that no
// route takes are closed, also with the Protocol HTTPS: then those for requests have routes too.
type Listener struct {
	// Name tells it from the others: "tcp_5432", or "https".
	Name     string
	Port     int
	Protocol Protocol
	// Trusted are the networks whose connections begin with a header of the PROXY
	// protocol, sorted. Those of an HTTPS listener, and of one with a Bind, are the configuration's.
	Trusted []netip.Prefix
	Routes  []ConnectionRoute // by SNI
	// Bind is the name of the port of a Gateway, as in a [Bind], or "". Addresses are those that it is
	// opened at; none are the configuration's.
	Bind        string
	Addresses   []string
	ServerNames []ServerName
	// Passes and Ends say, with a Bind, that TLS connections are passed on as they are, and that TLS ends here
	// for connections that are routed as wholes. The port of neither takes connections of any kind.
	Passes, Ends bool
	// Clients is nil where clients are not asked for certificates, where TLS ends for connections that are
	// routed as wholes. Those of HTTPS have it in the [Bind].
	Clients *ClientCheck
	Origins []Origin // with a Bind
}

// ListenerName names the listener of a port of a Gateway.
func ListenerName(bind string) string { return "gateway_" + bindFile(bind) }

// Terminator names the backend that hands connections whose TLS ends here on to another frontend.
func (l Listener) Terminator() string {
	if l.Bind != "" {
		return "hapsnap_terminate-" + l.Name
	}
	return "hapsnap_terminate-" + strconv.Itoa(l.Port)
}

// Receiver names the backend that hands connections on to the frontend that has the Bind.
func (l Listener) Receiver() string { return "hapsnap_requests-" + l.Name }

// Door names the socket by which connections get to the frontend that ends TLS.
func (l Listener) Door() string {
	if l.Bind != "" {
		return door("terminate", l.Bind)
	}
	return l.Name
}

// BehindDoor names the socket of the [Bind].
func (l Listener) BehindDoor() string { return door("requests", l.Bind) }

// Target returns the backend that a route of a listener with a Bind leads to, of those that there are
// before TLS ends, if it does.
func (l Listener) Target(r ConnectionRoute) string {
	switch {
	case r.Terminate && r.Backend == "":
		return l.Receiver()
	case r.Terminate && l.Inspects():
		return l.Terminator()
	}
	return r.Backend
}

// AsksHost reports whether the host that TLS asks for decides, at a listener with a Bind.
func (l Listener) AsksHost() bool { return l.Passes || l.Ends || l.Protocol == HTTPS }

// Protocol is what becomes of the connections of a [Listener].
type Protocol string

// The protocols. Those of an HTTP listener are requests in the clear. Connections of an HTTPS listener that no route takes are those
// of the hosts of the [Model]; those of a TCP listener are closed.
const (
	HTTP  Protocol = "HTTP"
	HTTPS Protocol = "HTTPS"
	TCP   Protocol = "TCP"
)

// ConnectionRoute sends connections to a backend.
type ConnectionRoute struct {
	// SNI is the host that TLS asks for, named as a [Host] is: ".foo.com" is the
	// wildcard. "" stands for all connections that no other route takes, with TLS
	// or without.
	SNI string
	// Terminate ends TLS here, with the certificate in the file Certificate. Else
	// what the connection holds is passed on as it is.
	Terminate   bool
	Certificate string
	// Backend is the name of one of the model's ConnectionBackends, or of a Split of them. With Terminate
	// on an HTTPS listener there may be none: the hosts of the model have it.
	Backend string
	Origin  Origin
}

// Fallback returns the backend of connections that no other route takes, or "".
func (l Listener) Fallback() string {
	if r, ok := l.fallback(); ok {
		return r.Backend
	}
	return ""
}

func (l Listener) fallback() (ConnectionRoute, bool) {
	i := slices.IndexFunc(l.Routes, func(r ConnectionRoute) bool { return r.SNI == "" })
	if i < 0 {
		return ConnectionRoute{}, false
	}
	return l.Routes[i], true
}

// Terminates reports whether TLS ends here for some of the connections.
func (l Listener) Terminates() bool {
	return l.Protocol == HTTPS || l.Ends || slices.ContainsFunc(l.Routes, func(r ConnectionRoute) bool { return r.Terminate })
}

// TerminatesRest reports whether TLS ends here for those that no other route takes.
func (l Listener) TerminatesRest() bool {
	r, ok := l.fallback()
	return l.Protocol == HTTPS || (ok && r.Terminate)
}

// Inspects reports whether a connection has to be looked at before it is known
// what becomes of it. It has not if TLS ends here for all, or if there is but one
// route.
func (l Listener) Inspects() bool {
	if l.Protocol == HTTPS {
		return true
	}
	if l.Bind != "" {
		return l.Passes
	}
	if len(l.Routes) == 1 && l.Routes[0].SNI == "" {
		return false
	}
	return slices.ContainsFunc(l.Routes, func(r ConnectionRoute) bool { return !r.Terminate })
}

// Splits reports whether there are connections of both kinds, so that those whose
// TLS ends here are handed on to another frontend.
func (l Listener) Splits() bool { return l.Inspects() && l.Terminates() }

// Terminated returns the routes for which TLS ends here, the one for all others
// first.
func (l Listener) Terminated() []ConnectionRoute {
	return slices.DeleteFunc(slices.Clone(l.Routes), func(r ConnectionRoute) bool { return !r.Terminate })
}

// Except returns the hosts that a terminated route's wildcard does not stand for.
// Without them HAProxy might take its certificate for one of these, if its key is
// of another kind.
func (l Listener) Except(wildcard ConnectionRoute) []string {
	var out []string
	for _, r := range l.Routes {
		host, ok := strings.CutSuffix(r.SNI, wildcard.SNI)
		if ok && wildcard.SNI != "" && host != "" && !strings.Contains(host, ".") && r.Certificate != wildcard.Certificate {
			out = append(out, r.SNI)
		}
	}
	return out
}

// TCPListenerName names the listener of a port.
func TCPListenerName(port int) string { return "tcp_" + strconv.Itoa(port) }

// Unavailable is the name of the backend without targets that routes get whose
// backend cannot be named otherwise. Names of Services hold no underscore, so
// that those of their backends hold two.
const Unavailable = "hapsnap_unavailable"

// SnippetLine is a line of haproxy.cfg that an object brings for its backends.
type SnippetLine struct {
	policy.Line
	Origin Origin
}

// ErrorPage is what HAProxy answers with a status of its own: not what a server
// answers. It is sent as it is.
type ErrorPage struct {
	Status      int
	ContentType string
	Body        string
	Origin      Origin // in the ConfigMap
	Suffix      string // the end of the file's name
}

// File returns the path of the page in a snapshot.
func (p ErrorPage) File() string { return fmt.Sprintf("files/error-%d.%s", p.Status, p.Suffix) }

// Standard reports whether HAProxy answers with the status by itself, and not only because of a rule.
func (p ErrorPage) Standard() bool { return p.Status != 411 }

// Certificate is a TLS certificate for the hosts that name it, but for those that
// are a ServerName. Hosts are lower case, with "*." for wildcards, sorted.
type Certificate struct {
	File   string // "certs/shop_web-tls.pem", as crt-lists name it
	Secret snapshots.SecretName
	// Use says what it is for, as in a [snapshots.CertificateRef]: those that are
	// not for hosts have none.
	Use   snapshots.Use
	Hosts []string
	// Observed is nil if the Secret was not among the inputs.
	Observed *snapshots.ObservedCertificate
	Origin   Origin
}

// ServerName is what clients get that ask for a host over TLS, by SNI.
type ServerName struct {
	// Host is as in a Certificate.
	Host string
	// Certificates are files, among which the client's means decide; none
	// stands for the default certificate.
	Certificates []string
	// Except are the hosts that a wildcard does not stand for. Without this,
	// HAProxy would take a wildcard's certificate for a host that has one of its
	// own, if the wildcard's key is of another kind.
	Except []string
	// Clients is nil where clients are not asked for certificates.
	Clients *ClientCheck
	Origin  Origin
}

// ClientCheck asks TLS clients for a certificate of an authority, when they
// connect. Routes to which more applies have it in their [policy.Protection].
type ClientCheck struct {
	Authority string // a file, of a Certificate for that use, or of an [Authority]
	// Required refuses connections without a certificate; all others than those
	// of the authority are refused in any case.
	Required bool
	// Any accepts every certificate: clients are asked for one, and nothing follows from it.
	Any bool
}

// Authority is certificate authorities that are a file of the snapshot, named for its content. Origins
// are the ConfigMaps that they are of.
type Authority struct {
	File    string
	PEM     []byte
	Origins []Origin
}

// NewAuthority returns the authorities of PEM data.
func NewAuthority(pem []byte, origins ...Origin) Authority {
	sum := sha256.Sum256(pem)
	return Authority{File: "files/ca-" + hex.EncodeToString(sum[:8]) + ".pem", PEM: pem, Origins: origins}
}

// maxFileStem leaves room in a file name for what the pusher adds.
const maxFileStem = 200

// CertificateFile returns the file that stands for the certificate of a Secret.
// A Secret's name holds no underscore, so that no two share a file; only one dot
// would survive the Dataplane API. A name that is too long for a file ends in its
// hash.
func CertificateFile(secret snapshots.SecretName) string { return secretFile("", secret) }

// AuthorityFile returns the file that stands for the authorities of a Secret. No
// Secret of a namespace "ca" has it, for no name begins with a dot.
func AuthorityFile(secret snapshots.SecretName) string { return secretFile("ca__", secret) }

func secretFile(prefix string, secret snapshots.SecretName) string {
	return "certs/" + shortStem(prefix+secret.Namespace+"_"+strings.ReplaceAll(secret.Name, ".", "_")) + ".pem"
}

// shortStem returns the name of a file that is not too long.
func shortStem(stem string) string {
	if len(stem) > maxFileStem {
		sum := sha256.Sum256([]byte(stem))
		stem = stem[:maxFileStem-17] + "_" + hex.EncodeToString(sum[:8])
	}
	return stem
}
