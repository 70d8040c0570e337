package config

import (
	"fmt"
	"net/netip"
	"regexp"
	"slices"
	"strings"
	"unicode"

	"github.com/hapsnap/hapsnap/compiler/config/field"
)

// Forwarded says how HAProxy treats headers with which proxies describe clients. See
// docs/reference/headers.md for what an endpoint gets.
type Forwarded struct {
	// Policy says which headers of trusted networks HAProxy believes. With replace it
	// believes none, and makes all of them itself. With append it believes X-Forwarded-For,
	// -Host, -Port and -Proto, adds the address that the request came from to the first,
	// and makes the others from these. With keep it passes all on unchanged, and adds those
	// that are missing. It never believes those of other networks.
	Policy ForwardedPolicy `json:"policy"`
	// Trusted are the networks of proxies in front of HAProxy, whose headers HAProxy may
	// believe. With policy replace it does so only for Ingresses with
	// hapsnap.dev/forwarded-for.
	Trusted []string `json:"trusted"`
	// ClientAddress says which address is the client's for allow-list, deny-list,
	// allow-countries, deny-countries, rate-limit, balance, logs, the PROXY protocol
	// towards endpoints and the service of auth-url. With connection, it is the address
	// that the request came from. With header, for requests from trusted networks, it is
	// the last of at most five addresses in X-Forwarded-For that is not in a trusted
	// network.
	ClientAddress ClientAddress `json:"clientAddress"`
	// RequestID adds an X-Request-ID to each request that has none of at most 128
	// characters.
	RequestID bool `json:"requestID"`
	// UnderscoresInHeaders passes on headers with underscores in their names. Without it,
	// HAProxy removes all headers whose names have characters other than letters, digits
	// and hyphens, since many endpoints confuse X_Real_IP with X-Real-IP.
	UnderscoresInHeaders bool `json:"underscoresInHeaders"`
	// AllowHeaders are headers that clients may send although HAProxy would remove them,
	// such as CF-Connecting-IP. Endpoints must not trust these headers then. Headers that
	// HAProxy itself sets cannot be allowed.
	AllowHeaders []string `json:"allowHeaders"`
}

// ForwardedPolicy says which headers of trusted networks HAProxy believes.
type ForwardedPolicy string

// The policies.
const (
	ReplaceForwarded ForwardedPolicy = "replace"
	AppendForwarded  ForwardedPolicy = "append"
	KeepForwarded    ForwardedPolicy = "keep"
)

// ClientAddress says where the client's address comes from.
type ClientAddress string

// The places.
const (
	AddressOfConnection ClientAddress = "connection"
	AddressInHeader     ClientAddress = "header"
)

// Hops are the positions, from the end, of the addresses in X-Forwarded-For among which HAProxy looks for the
// client's.
func (f Forwarded) Hops() []string { return []string{"-1", "-2", "-3", "-4", "-5"} }

func (f Forwarded) check(at field.Errors) {
	if f.Policy != ReplaceForwarded && f.Policy != AppendForwarded && f.Policy != KeepForwarded {
		at.At("policy").Add(fmt.Sprintf("%q is none of replace, append and keep", string(f.Policy)), "use replace, append or keep")
	}
	if f.ClientAddress != AddressOfConnection && f.ClientAddress != AddressInHeader {
		at.At("clientAddress").Add(fmt.Sprintf("%q is neither connection nor header", string(f.ClientAddress)), "use connection or header")
	}
	checkNetworks(at.At("trusted"), f.Trusted)
	if len(f.Trusted) == 0 {
		const hint = "list the networks of the proxies before HAProxy in forwarded.trusted"
		if f.Policy == AppendForwarded || f.Policy == KeepForwarded {
			at.At("policy").Add("is "+string(f.Policy)+", but no network is trusted", hint)
		}
		if f.ClientAddress == AddressInHeader {
			at.At("clientAddress").Add("is header, but no network is trusted", hint)
		}
	}
	for i, name := range f.AllowHeaders {
		message, hint := checkAllowed(name)
		at.At("allowHeaders").Element(i).Add(message, hint)
	}
}

// checkAllowed checks the name of a header that clients may send.
func checkAllowed(name string) (message, hint string) {
	plain := strings.NewReplacer("_", "-", ".", "-").Replace(strings.ToLower(name))
	switch {
	case !isToken(name):
		return fmt.Sprintf("%q is not the name of a header", name), "use a name such as CF-Connecting-IP"
	case slices.Contains(ownHeaders, plain):
		return name + " is set by HAProxy", "list the networks that may send it in forwarded.trusted, with the policy keep"
	case slices.Contains(goneHeaders, plain) || plain == "connection" || plain == "upgrade":
		return name + " is never passed on", "leave it out"
	}
	return "", ""
}

// isToken reports whether a text can be the name of a header (RFC 9110, 5.6.2).
func isToken(text string) bool {
	return text != "" && !strings.ContainsFunc(text, func(r rune) bool {
		return r <= ' ' || r >= 0x7f || strings.ContainsRune(`"(),/:;<=>?@[\]{}`, r)
	})
}

// checkNetworks checks a list of networks.
func checkNetworks(at field.Errors, networks []string) {
	for i, text := range networks {
		if _, ok := field.Network(text); !ok {
			at.Element(i).Add(fmt.Sprintf("%q is not a network", text), "use CIDRs such as 10.0.0.0/8 or fd00::/8, or addresses")
		}
	}
}

// Trusts reports whether a network is trusted.
func (f Forwarded) Trusts() bool { return len(f.Trusted) > 0 }

// MayMap reports whether the addresses of IPv4 clients may look like IPv6 addresses, such
// as ::ffff:192.0.2.1. That is so if a proxy writes them that way, or if a variable makes
// HAProxy listen on all addresses.
func (c Config) MayMap() bool {
	return len(c.ProxyProtocol.Trusted) > 0 || slices.ContainsFunc(c.Bind.Addresses, func(a string) bool {
		address, err := netip.ParseAddr(a)
		return field.IsVariable(a) || err == nil && address.Is4In6()
	})
}

// ownHeaders are the headers that HAProxy sets, in lower case.
var ownHeaders = []string{
	"x-forwarded-for", "x-forwarded-host", "x-forwarded-port", "x-forwarded-proto", "x-forwarded-scheme", "x-real-ip", "x-scheme",
}

// goneHeaders are removed from every request. CGI programs would take Proxy for the
// variable HTTP_PROXY, and HTTP2-Settings belongs to a connection that HAProxy ends.
var goneHeaders = []string{"proxy", "http2-settings"}

// proxyHeaders are the names, in lower case, of headers with which proxies say who the
// client is or what it asked for. A star at the end matches anything. Via is not among
// them: it names proxies, and nothing is granted for it. Assertions that endpoints verify
// by a signature, such as Cf-Access-Jwt-Assertion, are not either.
var proxyHeaders = []string{
	// The address of the client.
	"forwarded*", "x-forwarded*", "x-real-*", "x-client-ip", "x-cluster-client-ip", "x-proxyuser-ip", "x-originating-ip",
	"client-ip", "true-client-ip", "proxy-client-ip", "wl-proxy-*", "x-envoy-external-address", "x-azure-clientip", "x-azure-socketip",
	"x-appengine-*", "cf-connecting-*", "cf-ip*", "cf-visitor", "cloudfront-*", "fastly-client-ip", "fastly-ssl", "fly-client-ip",
	// What the client asked for.
	"x-original-*", "x-rewrite-*", "x-scheme", "x-url-scheme", "x-host", "x-http-host-override", "front-end-https",
	// Who the client is.
	"remote-*", "x-remote-*", "x-auth-request-*", "x-authenticated-*", "x-webauth-*", "x-authentik-*", "x-vouch-*", "tailscale-user-*",
	"x-goog-authenticated-user-*", "x-ms-client-principal*", "x-amzn-oidc-identity", "cf-access-authenticated-user-*",
	// The client's certificate.
	"ssl-*", "x-ssl-*", "client-cert*", "x-client-cert*", "x-client-dn", "x-client-verify", "x-tls-client-*", "x-arr-*", "x-amzn-mtls-*",
}

// Unfit returns the regular expression of names that are never passed on, in lower
// case.
func (f Forwarded) Unfit() string {
	characters := "a-z0-9-"
	if f.UnderscoresInHeaders {
		characters = "a-z0-9_-"
	}
	if len(f.AllowHeaders) == 0 {
		return "^" + f.alternatives(goneHeaders) + "|[^" + characters + "]"
	}
	return "^" + f.except(f.AllowHeaders) + "(?:" + f.alternatives(goneHeaders) + "|.*[^" + characters + "])"
}

// Owned returns the regular expression of names that proxies own.
func (f Forwarded) Owned() string { return f.owned(f.AllowHeaders) }

// OwnedOfAppended is [Forwarded.Owned] without the headers that count with the policy
// append.
func (f Forwarded) OwnedOfAppended() string {
	return f.owned(append([]string{"x-forwarded-for", "x-forwarded-host", "x-forwarded-port", "x-forwarded-proto"}, f.AllowHeaders...))
}

func (f Forwarded) owned(but []string) string {
	return "^" + f.except(but) + f.alternatives(proxyHeaders)
}

// except returns an expression that matches at the beginning of all names except some.
func (f Forwarded) except(names []string) string {
	if len(names) == 0 {
		return ""
	}
	var quoted []string
	for _, name := range names {
		quoted = append(quoted, regexp.QuoteMeta(strings.ToLower(name)))
	}
	return "(?!(?:" + strings.Join(quoted, "|") + ")$)"
}

// alternatives returns an expression for any of the names. Names with x- stand together at
// the end, so that other names are ruled out early. If underscores may be in names, they
// count as hyphens.
func (f Forwarded) alternatives(names []string) string {
	var plain, extended []string
	for _, name := range names {
		name, isPrefix := strings.CutSuffix(name, "*")
		if !isPrefix {
			name += "$"
		}
		if rest, ok := strings.CutPrefix(name, "x-"); ok {
			extended = append(extended, rest)
		} else {
			plain = append(plain, name)
		}
	}
	if len(extended) > 0 {
		plain = append(plain, "x-(?:"+strings.Join(extended, "|")+")")
	}
	text := "(?:" + strings.Join(plain, "|") + ")"
	if f.UnderscoresInHeaders {
		text = strings.ReplaceAll(text, "-", "[-_]")
	}
	return text
}

// Countries configures the list that maps addresses of clients to countries.
type Countries struct {
	// ConfigMaps hold the list, each as namespace/name: the texts of all their keys
	// together. A line is a network and a code, such as 192.0.2.0/24 DE; # begins a
	// comment. A code has two letters or digits, and may have a region of up to three, such
	// as US-CA. The smallest network that contains an address decides, in whatever order
	// the lines are. An address outside of all networks has the code ZZ. If one line cannot
	// be read, or one ConfigMap does not exist, there is no list: routes with
	// allow-countries or deny-countries answer 503. See docs/how-to/countries.md.
	ConfigMaps []string `json:"configMaps"`
	// Files hold the list, or a part of it, in the same form: each is the path of a file, or of a
	// folder all of whose files count but hidden ones, as seen by the compiler. Relative paths
	// count from the folder that it runs in. A file that is missing, empty or cannot be read is
	// like a ConfigMap that does not exist.
	Files []string `json:"files"`
	// Header is the name of a header with the code for endpoints, such as X-Country.
	// HAProxy always removes that header from requests of clients, also while there is no
	// list. If empty, endpoints get no such header.
	Header string `json:"header"`
}

// countryHeaderForm matches names that no endpoint confuses with another header.
var countryHeaderForm = regexp.MustCompile(`^[A-Za-z][A-Za-z0-9-]{0,63}$`)

// vitalHeaders are the headers, in lower case, without which a request is not what the
// client sent.
var vitalHeaders = []string{
	"host", "connection", "upgrade", "content-length", "content-type", "content-encoding", "transfer-encoding", "te", "trailer", "keep-alive",
	"expect", "cookie", "authorization", "accept", "origin", "x-request-id",
}

func (c Countries) check(f field.Errors) {
	for i, name := range c.ConfigMaps {
		f.At("configMaps").Element(i).Add(checkShared(name), "use the namespace and the name of a ConfigMap, such as edge/countries")
	}
	for i, path := range c.Files {
		if path == "" || strings.ContainsFunc(path, unicode.IsControl) {
			f.At("files").Element(i).Add(fmt.Sprintf("%q is no path", path), "name a file or a folder, such as /etc/hapsnap/countries")
		}
	}
	if c.Header == "" {
		return
	}
	name := strings.ToLower(c.Header)
	at := f.At("header")
	switch {
	case !countryHeaderForm.MatchString(c.Header):
		at.Add(fmt.Sprintf("%q is not the name of a header", c.Header), "use letters, digits and hyphens, such as X-Country")
	case slices.Contains(ownHeaders, name), slices.Contains(goneHeaders, name), slices.Contains(vitalHeaders, name):
		at.Add(c.Header+" has another meaning", "use a name of its own, such as X-Country")
	case len(c.ConfigMaps)+len(c.Files) == 0:
		at.Add("is set without a list", "name the list in countries.configMaps or countries.files")
	}
}
