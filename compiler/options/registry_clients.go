package options

import (
	"regexp"
	"slices"

	"github.com/hapsnap/hapsnap/compiler/diag"
	"github.com/hapsnap/hapsnap/compiler/policy"
)

// Clients is what an Ingress asks of its TLS clients.
type Clients struct {
	// Authority names the Secret whose authorities sign the certificates of
	// clients, "" if they are not asked for any.
	Authority string
	// Check is what is made of the certificates then.
	Check policy.ClientCertificate
}

func clientOptions() []Option {
	return []Option{
		define(Option{
			Name: "client-ca-secret", Group: Protecting, On: OnIngress, Closes: true, Value: "the name of a Secret", Example: "client-ca",
			Summary: "The hosts of the Ingress are for TLS clients with a certificate of an authority in this Secret of the same namespace, under the key `ca.crt`. Others get no connection; where an Ingress without this option, or with another `client-verify`, has the same host, they get 403 for the routes of this one. Plain HTTP gets 403, unless `ssl-redirect` is on, and a connection that was made for another host 421. All rules must name a host; of two Ingresses with different Secrets for one host, the younger answers 503.",
		}, secretName, func(s *Settings, v string) { s.Clients.Authority = v }),
		define(Option{
			Name: "client-verify", Group: Protecting, On: OnIngress, Closes: true, Needs: "client-ca-secret", Value: "`required` or `optional`", Example: "optional", Default: "`required`",
			Summary: "`optional` also serves clients without a certificate.",
		}, oneOf(map[string]bool{"required": false, "optional": true}), func(s *Settings, v bool) { s.Clients.Check.Required = !v }),
		define(Option{
			Name: "client-match-cn", Group: Protecting, On: OnIngress, Closes: true, Needs: "client-ca-secret", Value: "a regular expression", Example: `(?:billing|orders)\.internal`,
			Summary: "Serves only clients with a certificate whose subject has one common name (CN), and the whole of that matches the expression (a part of [PCRE](expressions.md)). Others get 403, and so do clients without a certificate, where `client-verify` is `optional`, too.",
		}, wholeMatch, func(s *Settings, v string) { s.Clients.Check.MatchCN = v }),
		define(Option{
			Name: "client-error-page", Group: Protecting, On: OnIngress, Closes: true, Needs: "client-ca-secret", Value: "a URL", Example: "https://help.example/certificates",
			Summary: "Redirects clients without a certificate there, with 302, in place of ending their connection. A certificate of another authority ends it all the same. It must not be protected by the same option.",
		}, signIn, func(s *Settings, v string) { s.Clients.Check.ErrorPage = v }),
		define(Option{
			Name: "client-cert-headers", Group: Protecting, On: OnIngress, Closes: true, Needs: "client-ca-secret",
			Value: "`none`, or some of `verify`, `dn`, `issuer-dn`, `sha1`, `sha256`, `cert`, and `ssl-client-verify`, `ssl-client-subject-dn`, `ssl-client-issuer-dn`, `ssl-client-cert`, separated by commas", Example: "verify, dn, sha256", Default: "`verify, dn`",
			Summary: "What endpoints are told of the client's certificate: X-SSL-Client-Verify (`SUCCESS` or `NONE`), X-SSL-Client-DN and X-SSL-Client-Issuer-DN (RFC 4514), X-SSL-Client-SHA1 and X-SSL-Client-SHA256 (hexadecimal), X-SSL-Client-Cert (DER in base64). The last four are headers of these names, as ingress-nginx writes them; the last is PEM, percent-encoded. With `client-ca-secret`, every header whose name begins with X-SSL-Client- or SSL-Client- is removed from what clients send; an endpoint that trusts these headers must have no route without it.",
		}, certificateFields, func(s *Settings, v []policy.CertificateField) { s.Clients.Check.Forward = v }),
	}
}

// certificateFields reads what is told of a certificate, each thing once.
func certificateFields(text string) ([]policy.CertificateField, error) {
	if text == "none" {
		return []policy.CertificateField{}, nil
	}
	known := map[string]policy.CertificateField{}
	for _, f := range []policy.CertificateField{
		policy.FieldVerify, policy.FieldDN, policy.FieldIssuer, policy.FieldSHA1, policy.FieldSHA256, policy.FieldCert,
		policy.FieldNginxVerify, policy.FieldNginxDN, policy.FieldNginxIssuer, policy.FieldNginxCert,
	} {
		known[string(f)] = f
	}
	out, err := listOf(oneOf(known))(text)
	slices.Sort(out)
	return slices.Compact(out), err
}

// wholeMatch reads an expression that is to match all of a text.
func wholeMatch(text string) (string, error) {
	if _, err := regexp.Compile(text); err != nil { // such as a)|(?:b, which would be one in parentheses
		_, err := groupsOf(text)
		return "", err
	}
	_, err := groupsOf("^(?:" + text + ")$")
	return text, err
}

// clients fills what is empty. Whoever asks for certificates without saying
// whose must not be served without.
func (r *resolution) clients() {
	c := &r.settings.Clients
	if c.Authority == "" {
		for _, name := range []string{"client-verify", "client-match-cn", "client-error-page"} {
			if r.has(name) {
				r.closed = true
				r.report(diag.Error, name, "needs authorities"+closes, "set "+Prefix+"client-ca-secret")
			}
		}
		return
	}
	if !r.has("client-verify") {
		c.Check.Required = true
	}
	if c.Check.Forward == nil {
		c.Check.Forward = []policy.CertificateField{policy.FieldDN, policy.FieldVerify}
	}
	r.settings.Protection.Clients = &c.Check
}
