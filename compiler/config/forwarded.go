package config

import (
	"fmt"
	"net/netip"
	"regexp"
	"slices"
	"strings"

	"github.com/hapsnap/hapsnap/compiler/config/field"
)

// Forwarded says what becomes of headers by which proxies tell endpoints about clients.
// See docs/reference/headers.md for what an endpoint gets.
type Forwarded struct {
	// Policy says what counts of the headers that trusted networks send. With replace,
	// nothing does: all are made anew. With append, X-Forwarded-For, -Host, -Port and
	// -Proto count, the address that the request came from is added to the first, and
	// the others are made from these. With keep, all stay as they came, and those that
	// are missing are added. Those of other networks never count.
	Policy ForwardedPolicy `json:"policy"`
	// Trusted are the networks of proxies that stand before HAProxy, whose headers may
	// count. With policy replace, they count where an Ingress asks for it with
	// hapsnap.dev/forwarded-for.
	Trusted []string `json:"trusted"`
	// ClientAddress says which address is the client's for allow-list, deny-list,
	// rate-limit, balance, logs, the PROXY protocol towards endpoints and the service
	// that auth-url names: with connection, the one that the request came from; with
	// header, for requests from trusted networks, the last one in X-Forwarded-For that
	// is not of a trusted network, of at most five.
	ClientAddress ClientAddress `json:"clientAddress"`
	// RequestID gives each request an X-Request-ID, unless it has one of at most 128
	// characters.
	RequestID bool `json:"requestID"`
	// UnderscoresInHeaders passes on headers with underscores in their names. Without
	// it, all headers are removed whose names have other characters than letters,
	// digits and hyphens, since many endpoints take X_Real_IP for X-Real-IP.
	UnderscoresInHeaders bool `json:"underscoresInHeaders"`
	// AllowHeaders are names of headers that clients may send although they would be
	// removed, such as CF-Connecting-IP. Endpoints must not trust these then. Those
	// that HAProxy itself sets cannot be allowed.
	AllowHeaders []string `json:"allowHeaders"`
}

// ForwardedPolicy says what counts of headers that trusted networks send.
type ForwardedPolicy string

// The policies.
const (
	ReplaceForwarded ForwardedPolicy = "replace"
	AppendForwarded  ForwardedPolicy = "append"
	KeepForwarded    ForwardedPolicy = "keep"
)

// ClientAddress says where the client's address is from.
type ClientAddress string

// The places.
const (
	AddressOfConnection ClientAddress = "connection"
	AddressInHeader     ClientAddress = "header"
)

// Hops are the addresses of X-Forwarded-For, from its end, that are looked at for
// the client's, as HAProxy counts them.
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
			at.At("policy").Add("is "+string(f.Policy)+", and no network is trusted", hint)
		}
		if f.ClientAddress == AddressInHeader {
			at.At("clientAddress").Add("is header, and no network is trusted", hint)
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
		if _, ok := parseNetwork(text); !ok {
			at.Element(i).Add(fmt.Sprintf("%q is not a network", text), "use CIDRs such as 10.0.0.0/8 or fd00::/8, or addresses")
		}
	}
}

// Trusts reports whether a network is trusted.
func (f Forwarded) Trusts() bool { return len(f.Trusted) > 0 }

// MayMap reports whether the addresses of IPv4 clients may come as those of IPv6,
// such as ::ffff:192.0.2.1: from a proxy that writes them so, or where a variable
// says to listen at all addresses.
func (c Config) MayMap() bool {
	return len(c.ProxyProtocol.Trusted) > 0 || slices.ContainsFunc(c.Bind.Addresses, func(a string) bool {
		address, err := netip.ParseAddr(a)
		return field.IsVariable(a) || err == nil && address.Is4In6()
	})
}

// ownHeaders are those that HAProxy sets, in lower case.
var ownHeaders = []string{
	"x-forwarded-for", "x-forwarded-host", "x-forwarded-port", "x-forwarded-proto", "x-forwarded-scheme", "x-real-ip", "x-scheme",
}

// goneHeaders are removed from every request: programs that are run by a
// server take Proxy for the variable HTTP_PROXY, and HTTP2-Settings is of a
// connection that HAProxy ends.
var goneHeaders = []string{"proxy", "http2-settings"}

// proxyHeaders are the names, in lower case, by which proxies tell endpoints of a
// client, what it asked for, or who it is. A star at the end stands for anything.
// Via is none of them: it names proxies, and nothing is granted for it. Nor are
// assertions that endpoints verify by a signature, such as Cf-Access-Jwt-Assertion.
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

// except returns an expression that matches at the beginning of all names but some.
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

// alternatives returns an expression for any of the names. Those with x- stand
// together at the end, so that a name that is none of them is known soon. Where
// underscores may be in names, they count as hyphens.
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
