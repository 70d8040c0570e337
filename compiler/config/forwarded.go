package config

import (
	"fmt"
	"net/netip"
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
