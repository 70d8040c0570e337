package routing

import (
	"cmp"
	"slices"

	"github.com/hapsnap/hapsnap/compiler/diag"
	"github.com/hapsnap/hapsnap/compiler/policy"
	"github.com/hapsnap/hapsnap/snapshots"
)

// Model is the routing of one compile: what Ingresses (and later Gateway API
// routes) mean, free of where it was said. Every list is sorted, so that the
// same objects give the same Model in whatever order they came.
type Model struct {
	Hosts        []Host        // by name
	Held         []Held        // by name, none that is among Hosts
	Shut         []diag.Object // Ingresses that are left out, and whose routes are closed
	Backends     []Backend     // by name
	Certificates []Certificate // by file
	Userlists    []Userlist    // by name
	NetworkLists []NetworkList // by name
	ErrorPages   []ErrorPage   // by status
	// ServerNames are the TLS hosts that need more than to be one of a
	// Certificate's Hosts, by name.
	ServerNames []ServerName
	// DefaultCertificate is the file of the certificate that is served where no
	// other fits; "" leaves that to the fallback certificate.
	DefaultCertificate string
	// Default is the name of the backend for requests that no rule matches;
	// "" answers them with 404.
	Default       string
	DefaultOrigin Origin
	// Listeners are the ports whose connections are routed as wholes, by name, and
	// ConnectionBackends those that they are sent to, by name, without filters.
	// Another one that only has requests is not among them: all have the same Hosts.
	Listeners          []Listener
	ConnectionBackends []Backend
	// Asked says what was looked up by name, whether it was there or not.
	Asked Asked
}

// Asked names the objects that a translation looked for, sorted. With others the
// model would be the same.
type Asked struct {
	Secrets, ConfigMaps []snapshots.SecretName
}

// Host is one virtual host. Name is lower case: "" for rules without a host,
// ".foo.com" for the wildcard "*.foo.com" (one label), else a host name. The
// most specific host that matches a request owns it, whether it has routes or
// not. Origin is the oldest object that names the host.
type Host struct {
	Name string
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

// Held is a host without routes that is known all the same, so that no wildcard and no
// rule without a host answers for it. Name is as in a [Host].
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

// compare orders matches by path, exact before prefix.
func (m PathMatch) compare(o PathMatch) int {
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

// The parts that conditions are about. Values are compared as a whole, and
// case counts; of a header or a parameter that is there several times, one
// must have the value.
const (
	Method Part = "Method"
	Header Part = "Header"
	// HeaderPattern is about the beginning of a header, of which Value is an expression.
	HeaderPattern Part = "HeaderPattern"
	Cookie        Part = "Cookie"
	Query         Part = "Query"
)

// Route sends what matches through filters to a backend.
type Route struct {
	Match   Match
	Filters []policy.Filter // in their order
	Backend string          // the Name of a Backend
	// Yields says that while the backend has no usable server, requests go on
	// to the next route of the path.
	Yields bool
	// Protects says that the route keeps requests out, which has its host guarded.
	Protects bool
	Origin   Origin
}

// ReplacesPrefix reports whether a filter replaces what the route matched, so
// that it has to be known what that was.
func (r Route) ReplacesPrefix() bool { return replacesPrefix(r.Filters) }

func replacesPrefix(filters []policy.Filter) bool {
	for _, f := range filters {
		if rewrite, ok := f.(policy.RewritePath); ok && rewrite.Pattern == "" {
			return true
		}
	}
	return false
}

// Backend is one HAProxy backend. Without Targets every request is answered
// 503, as for a Service that does not exist.
//
// It carries the filters and the protection of the routes that lead to it, where
// they cost other routes nothing: routes that differ in them lead to different
// backends.
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
	// Origins are the objects that asked for it, sorted: the first one is
	// named where one object must answer for a line.
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

// ExternalName is a host outside of what Kubernetes knows the addresses of.
type ExternalName struct {
	Host string // in lower case
	Port int
}

// Certificate is a TLS certificate for the hosts that name it, but for those that
// are a ServerName. Hosts are as in the Ingress, lower case, with "*." for
// wildcards, sorted.
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
	Authority string // a file, of a Certificate for that use
	// Required refuses connections without a certificate; all others than those
	// of the authority are refused in any case.
	Required bool
}

// Origin is the object and the place in it that something came from.
type Origin struct {
	Object   diag.Object
	Position diag.Position
	// Field is where that is in the object, such as spec.rules[0].host; empty for
	// the whole object. Objects from a cluster have it, and no Position.
	Field string
}

// compare orders origins by object, then by position.
func (o Origin) compare(p Origin) int {
	return cmp.Or(o.Object.Compare(p.Object), o.Position.Compare(p.Position), cmp.Compare(o.Field, p.Field))
}
