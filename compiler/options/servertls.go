package options

import (
	"regexp"
	"slices"
	"strings"

	"github.com/hapsnap/hapsnap/compiler/diag"
	"github.com/hapsnap/hapsnap/compiler/policy"
)

// ServerSecrets are the names of Secrets, of the namespace of the object that
// asks, which TLS to servers needs; "" is none. See [policy.TLS] for what they
// become.
type ServerSecrets struct {
	Authorities, Certificate string
}

// serverTLS is what is said of TLS to the servers.
type serverTLS struct {
	on     bool
	system bool // the authorities of the system verify
	sni    policy.TLS
	limits policy.TLS // versions and ciphers
}

// serverTLSOptions say how servers are spoken to over TLS.
func serverTLSOptions() []Option {
	return []Option{
		define(Option{
			Name: "backend-verify", Group: Backends, On: onBoth, Closes: true, Value: "`none` or `system`", Example: "none", Default: "`none`",
			Summary: "`system` accepts an endpoint only with a certificate for `backend-sni` by an authority that HAProxy's system knows.",
		}, oneOf(map[string]bool{"none": false, "system": true}), func(s *Settings, v bool) { s.servers.system = v }),
		define(Option{
			Name: "backend-ca-secret", Group: Backends, On: onBoth, Closes: true, Value: "the name of a Secret of the same namespace", Example: "internal-ca",
			Summary: "Accepts an endpoint only with a certificate for `backend-sni` by an authority in this Secret, under the key `ca.crt`, in place of those of the system. Without the Secret no endpoint is accepted.",
		}, secretName, func(s *Settings, v string) { s.ServerSecrets.Authorities = v }),
		define(Option{
			Name: "backend-client-secret", Group: Backends, On: onBoth, Closes: true, Value: "the name of a Secret of the same namespace", Example: "edge-client",
			Summary: "The certificate, of a Secret of type `kubernetes.io/tls`, that endpoints are shown if they ask for one. Without the Secret they are shown one that nobody vouches for.",
		}, secretName, func(s *Settings, v string) { s.ServerSecrets.Certificate = v }),
		define(Option{
			Name: "backend-tls-versions", Group: Backends, On: onBoth, Closes: true, Value: "a version of TLS, or two with `-` in between: `1.0`, `1.1`, `1.2`, `1.3`", Example: "1.2-1.3",
			Summary: "The only versions of TLS that endpoints are spoken to by.",
		}, tlsVersions, func(s *Settings, v [2]string) { s.servers.limits.MinVersion, s.servers.limits.MaxVersion = v[0], v[1] }),
		define(Option{
			Name: "backend-tls-ciphers", Group: Backends, On: onBoth, Closes: true, Value: "a list of ciphers as OpenSSL has it", Example: "HIGH:!aNULL:!AES128", most: mostText,
			Summary: "The ciphers that endpoints are offered up to TLS 1.2. Those of TLS 1.3 are always offered.",
		}, cipherList, func(s *Settings, v string) { s.servers.limits.Ciphers = v }),
		define(Option{
			Name: "backend-sni", Group: Backends, On: onBoth, Closes: true, Value: "a DNS name, or `request-host`", Example: "internal.example",
			Summary: "The name that endpoints are asked for over TLS.",
		}, serverName, func(s *Settings, v policy.TLS) { s.servers.sni = v }),
	}
}

// tls joins what is said of TLS to the servers. Whoever asks for certificates to
// be verified, or to be shown, must not be served without.
func (r *resolution) tls() {
	s := &r.settings
	if !s.servers.on {
		r.withoutTLS()
		s.ServerSecrets = ServerSecrets{}
		return
	}
	verifier := ""
	switch secret := s.ServerSecrets.Authorities != ""; {
	case secret && r.has("backend-verify") && !s.servers.system:
		r.refuse("backend-verify", "is none, which contradicts "+Prefix+"backend-ca-secret", "remove one of the two")
	case secret:
		verifier = "backend-ca-secret"
	case s.servers.system:
		verifier = "backend-verify"
	}
	s.Upstream.TLS = &policy.TLS{Verify: verifier != "", ServerName: s.servers.sni.ServerName, OfRequest: s.servers.sni.OfRequest,
		MinVersion: s.servers.limits.MinVersion, MaxVersion: s.servers.limits.MaxVersion, Ciphers: s.servers.limits.Ciphers}
	if verifier != "" && !r.has("backend-sni") {
		r.refuse(verifier, "cannot verify a certificate without a name", "set "+Prefix+"backend-sni")
	}
}

// withoutTLS reports what needs TLS where there is none.
func (r *resolution) withoutTLS() {
	const hint = "set " + Prefix + "backend-protocol to one that ends in -tls"
	if r.settings.servers.system {
		r.refuse("backend-verify", "needs TLS to the servers", hint)
	}
	for _, name := range []string{"backend-ca-secret", "backend-client-secret", "backend-tls-versions", "backend-tls-ciphers"} {
		if r.has(name) {
			r.refuse(name, "needs TLS to the servers", hint)
		}
	}
	if r.has("backend-sni") {
		r.report(diag.Warning, "backend-sni", "has no effect without TLS to the servers", hint)
	}
}

// refuse reports an option that protects something and cannot.
func (r *resolution) refuse(name, message, hint string) {
	r.closed = true
	r.report(diag.Error, name, message+closes, hint)
}

// tlsVersions reads the oldest and the newest version of TLS.
func tlsVersions(text string) ([2]string, error) {
	known := []string{"1.0", "1.1", "1.2", "1.3"}
	least, most, both := strings.Cut(text, "-")
	if !both {
		most = least
	}
	i, j := slices.Index(known, least), slices.Index(known, most)
	if i < 0 || j < i {
		return [2]string{}, fault("is not a range of versions of TLS", "use one such as 1.2 or 1.2-1.3")
	}
	return [2]string{"TLSv" + least, "TLSv" + most}, nil
}

// cipherListForm leaves out @SECLEVEL, which would take away what the system asks for.
var cipherListForm = regexp.MustCompile(`^[A-Za-z0-9_+!:-]*[A-Za-z0-9]$`)

// cipherList reads a list of ciphers. What OpenSSL makes of it, HAProxy says.
func cipherList(text string) (string, error) {
	if !cipherListForm.MatchString(text) || strings.HasPrefix(text, "-") {
		return "", fault("is not a list of ciphers", "use names and groups of OpenSSL, separated by colons, such as HIGH:!aNULL")
	}
	return text, nil
}
