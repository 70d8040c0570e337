package config

import (
	"regexp"
	"strings"
)

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
