package policy

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"net/netip"
	"slices"
	"strconv"
	"strings"
)

// BasicAuth serves only who knows a password (RFC 7617). The Authorization
// header goes on to the servers.
type BasicAuth struct {
	// Secret holds the users, as htpasswd under the key auth. It is one of the
	// namespace of whoever names it.
	Secret string
	// Realm tells users what the password is for.
	Realm string
	// Users is the name of the list of users that the Secret's are joined to.
	Users string
	// Alternative also serves clients that passed another check. If Others is set, clients without a password are not
	// refused yet: another filter checks them.
	Alternative, Others bool
}

// ExternalAuth asks a Service whether a request may pass. An answer of 2xx
// passes it; 401 and 403 are what the client gets; anything else, or no answer
// in time, refuses the request with 503.
type ExternalAuth struct {
	Service ServiceRef
	// Host and Path are those of the request to the Service, Method is "GET",
	// "HEAD" or "POST". It has no body.
	Host, Path, Method string
	Timeout            Duration
	// RequestHeaders are those of the client's request that the Service gets;
	// nil is all.
	RequestHeaders []string
	// AnswerHeaders are those of the Service's answer that the request goes on
	// with. What the client sent of these names is removed.
	AnswerHeaders []string
	// SignIn is a URL or a path to which 401 redirects, with the URL of the
	// request as a parameter; "" answers 401.
	SignIn string
	// Return says what of the URL that is, and Parameter what it is called.
	Return    Return
	Parameter string
	// HostOfRequest has the Service get the Host of the client's request, not Host.
	HostOfRequest bool
	// Backend is the name of the backend that has the Service's servers.
	Backend string
	// Alternative serves who got in by another way, too, without asking the Service. With a
	// Realm, those who are refused hear that a password of it would do.
	Alternative bool
	Realm       string
}

// ReservedHeaders removes headers that a client sent, and by which an [ExternalAuth] of another
// route to the same endpoints tells them of the user.
type ReservedHeaders struct {
	Names []string // in lower case
}

// Return says which URL a client comes back to after it signed in.
type Return string

// ReturnURL is the whole URL. The other values of Return are "path", its path and query, and "none".
const ReturnURL Return = "url"

// ServiceRef names a Service and a number of its ports. Without a Namespace it
// is one of the namespace of whoever names it.
type ServiceRef struct {
	Namespace, Name string
	Port            int
}

// Milliseconds returns the timeout as a number.
func (a ExternalAuth) Milliseconds() int { return a.Timeout.Seconds() * 1000 }

// Kind returns "BasicAuth".
func (BasicAuth) Kind() Kind { return "BasicAuth" }

// Kind returns "ReservedHeaders".
func (ReservedHeaders) Kind() Kind { return "ReservedHeaders" }

// Kind returns "ExternalAuth".
func (ExternalAuth) Kind() Kind { return "ExternalAuth" }

// ClientCertificate requires a certificate of an authority, which the client had to show when it connected for the request's
// host. A request on a connection for another host is refused, so that the client makes a new connection.
type ClientCertificate struct {
	// Required refuses clients that show none.
	Required bool
	// MatchCN is a regular expression of which the common name of the certificate's subject is
	// a whole match; others are refused. "" is any.
	MatchCN string
	// ErrorPage is where clients are redirected to that show none; "" refuses them.
	ErrorPage string
	// Forward says which fields of the certificate servers get, in headers. Headers with these names from a client are
	// always removed.
	Forward []CertificateField
}

// CertificateField is something that can be told of a client's certificate.
type CertificateField string

// The fields: whether there is a certificate; the names of its subject and of
// its issuer (RFC 4514); its fingerprints, in hexadecimal; all of it.
const (
	FieldVerify CertificateField = "verify"
	FieldDN     CertificateField = "dn"
	fieldIssuer CertificateField = "issuer-dn"
	fieldSHA1   CertificateField = "sha1"
	fieldSHA256 CertificateField = "sha256"
	fieldCert   CertificateField = "cert"
	// Those that ingress-nginx passes on, under its names.
	fieldNginxVerify CertificateField = "ssl-client-verify"
	fieldNginxDN     CertificateField = "ssl-client-subject-dn"
	fieldNginxIssuer CertificateField = "ssl-client-issuer-dn"
	fieldNginxCert   CertificateField = "ssl-client-cert"
)

// CertificateFields returns all fields.
func CertificateFields() []CertificateField {
	return []CertificateField{
		FieldVerify, FieldDN, fieldIssuer, fieldSHA1, fieldSHA256, fieldCert,
		fieldNginxVerify, fieldNginxDN, fieldNginxIssuer, fieldNginxCert,
	}
}

// Protection says which requests are refused. The zero Protection refuses none.
type Protection struct {
	// Deny and Allow are networks of clients. A client in Deny is refused. If Allow names anything, even an empty list, a
	// client outside of it is refused too.
	Deny, Allow Networks
	// AllowSuffices serves clients in Allow without authentication. Other clients are not refused, but the filters
	// authenticate them.
	AllowSuffices bool
	// DenyCountries and AllowCountries are codes of countries and regions, each of which a
	// client's address must pass like the networks above. A country stands for its regions too.
	DenyCountries, AllowCountries Countries
	Rate                          *RateLimit
	// MaxBody is the most bytes that a request's body may have; 0 is any.
	MaxBody int64
	// Clients is nil where clients need not say who they are over TLS.
	Clients *ClientCertificate
	// Layer tells several protections of a backend apart: see [Guard].
	Layer int
}

// Suffix is what names of ACLs end in.
func (p Protection) Suffix() string {
	if p.Layer == 0 {
		return ""
	}
	return "_" + strconv.Itoa(p.Layer)
}

// Guard refuses requests before the filters after it, whatever the filters before it have let in: it begins the layer
// of an object whose protection holds besides that of others. It has no rate, no size of a body and no certificates
// of clients.
type Guard struct {
	Protection Protection
}

// Kind returns "Guard".
func (Guard) Kind() Kind { return "Guard" }

// With returns the limit that is kept if both are. It reports false where they count in different ways.
func (r *RateLimit) With(o *RateLimit) (*RateLimit, bool) {
	if r == nil || o == nil {
		return cmp.Or(r, o), true
	}
	if r.Period != o.Period || r.Header != o.Header || !slices.Equal(r.Exempt.Prefixes, o.Exempt.Prefixes) || !slices.Equal(r.Exempt.Lists, o.Exempt.Lists) {
		return nil, false
	}
	least := func(a, b int) int {
		if a == 0 || b == 0 {
			return max(a, b)
		}
		return min(a, b)
	}
	out := *o
	out.Requests, out.Connections = least(r.Requests, o.Requests), least(r.Connections, o.Connections)
	return &out, true
}

// RateLimit refuses a client that sends more than Requests in a Period, or has more than
// Connections requests at a time; 0 is any number. Each HAProxy counts for itself.
type RateLimit struct {
	Requests    int
	Connections int
	Period      Duration
	// Header is the header whose values are counted separately; "" counts clients by their addresses.
	Header string
	Status int // of the refusal
	// Exempt are networks whose clients are not counted.
	Exempt Networks
	// Counted is how many clients HAProxy keeps a count of at a time; 0 is [MostCounted].
	Counted int
}

// MostCounted is how many clients a rate limit counts at a time. A count takes at most 256 bytes of HAProxy's memory.
const MostCounted = 100_000

// Entries returns how many entries HAProxy's table has. If it is full, HAProxy forgets the clients whose last request is
// the longest ago. It does not count new clients while all in the table have requests under way.
func (r RateLimit) Entries() int { return cmp.Or(r.Counted, MostCounted) }

// Any reports whether anything is refused.
func (p Protection) Any() bool {
	return p.Deny.Any() || p.Allow.Any() || len(p.DenyCountries)+len(p.AllowCountries) > 0 || p.Rate != nil || p.MaxBody > 0 || p.Clients != nil
}

// Countries are codes of countries, such as DE, and of regions, such as US-CA.
type Countries []string

// NoCountry is the code of addresses that the list of countries does not have.
const NoCountry = "ZZ"

// CountriesFile is the file of a snapshot that has the list of countries.
const CountriesFile = "files/countries.list"

// Regions returns the prefixes of the codes of all regions of the given countries.
func (c Countries) Regions() []string {
	var out []string
	for _, code := range c {
		if !strings.Contains(code, "-") && code != NoCountry {
			out = append(out, code+"-")
		}
	}
	return out
}

// Networks are networks of clients: those that are written out, and those of
// lists.
type Networks struct {
	Prefixes []netip.Prefix
	Lists    []NetworkList
}

// Any reports whether any network or list is named. A list counts even if it
// is empty.
func (n Networks) Any() bool { return len(n.Prefixes)+len(n.Lists) > 0 }

// NetworkList names a list of networks: one key of a ConfigMap. Without a Namespace it is in the
// namespace of the object that names it.
type NetworkList struct {
	Namespace, ConfigMap, Key string
}

// String returns "namespace/configmap/key".
func (l NetworkList) String() string {
	name := l.ConfigMap + "/" + l.Key
	if l.Namespace != "" {
		name = l.Namespace + "/" + name
	}
	return name
}

// File is the file of a snapshot that holds the list. Names and keys may have
// characters that a file may not, so that a hash tells the lists apart.
func (l NetworkList) File() string {
	const most = 150
	readable := strings.NewReplacer(".", "_", "/", "_").Replace(l.String())
	sum := sha256.Sum256([]byte(l.String()))
	return "files/networks_" + readable[:min(len(readable), most)] + "_" + hex.EncodeToString(sum[:6]) + ".list"
}

// Agent makes HAProxy ask a program about requests, and about answers, by SPOP. A file of the snapshot says what the program
// gets: see templates/files/spoe-agents.cfg.
type Agent struct {
	Name string
	// Engine is what the agent is called among the filters of a backend, and Prefix what its variables begin with.
	Engine, Prefix string
	// Answers says that it also gets answers.
	Answers bool
	// Wait is how long HAProxy waits for the body of a request, which the agent gets; "" is not at all.
	Wait string
	// Closes refuses requests about which the agent says nothing.
	Closes bool
	// RefuseIf is the variable that refuses a request, or "".
	RefuseIf string
}

// Kind returns "Agent".
func (Agent) Kind() Kind { return "Agent" }

// WAF makes an agent inspect requests for attacks. The agent gets the policy with each request: see
// templates/files/spoe-waf.cfg.
type WAF struct {
	// Namespace and Name are those of the ConfigMap that has the policy, and By is the namespace of the objects that
	// name it.
	Namespace, Name, By string
	// Policy is the text of it, in the form of package waf/policy, and Rules the version of the rules.
	Policy, Rules string
	// Open lets requests pass about which the agent says nothing. Else they are refused.
	Open bool
	// Partial lets bodies pass of which the agent only gets a part. Otherwise they are refused.
	Partial bool
	// BodyLimit is how many bytes of a body the agent gets; 0 is as many as fit into the buffer.
	BodyLimit int
	// Wait is how long a body is waited for.
	Wait string
	// Buffer is the size of HAProxy's buffers. One of them holds everything that the agent gets.
	Buffer int
}

// Kind returns "WAF".
func (WAF) Kind() Kind { return "WAF" }

// frame is what a message takes besides the policy, the request and its body: names, numbers, addresses and the name of
// the backend.
const frame = 2048

// Room is how many bytes a request may have for all of it to be told in one message, after the policy.
func (w WAF) Room() int { return max(0, w.Buffer-len(w.Policy)-frame) }

// Part is how many bytes of a body the agent gets if the rest may pass.
func (w WAF) Part() int {
	if half := w.Room() / 2; w.BodyLimit == 0 || w.BodyLimit > half {
		return half
	}
	return w.BodyLimit
}

// HeadRoom is how many bytes a request without its body may have then.
func (w WAF) HeadRoom() int { return w.Room() - w.Part() }

// PolicyName names the ConfigMap of the policy for people.
func (w WAF) PolicyName() string { return strings.TrimPrefix(w.Namespace+"/"+w.Name, "/") }
