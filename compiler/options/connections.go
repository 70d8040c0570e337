package options

import (
	"net/netip"
	"regexp"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/hapsnap/hapsnap/compiler/diag"
	"github.com/hapsnap/hapsnap/compiler/policy"
)

// Connections is what a Service asks for of ports of its own.
type Connections struct {
	Ports []ConnectionPort
	// SNI are the hosts that TLS connections must ask for; "*." is a wildcard.
	SNI []string
	// Secret is the certificate with which TLS ends here, or "".
	Secret string
	// Trusted are the networks whose connections begin with a header of the PROXY
	// protocol.
	Trusted []netip.Prefix
}

// ConnectionPort is a port to open, and the name or number of the Service's port
// that it leads to; "" is its only one, or the one of the same number.
type ConnectionPort struct {
	Port   int
	Target string
}

// TCPPort is the name of the option that opens ports.
const TCPPort = "tcp-port"

// tcpOptions open ports for Services.
func tcpOptions() []Option {
	return []Option{
		define(Option{
			Name: TCPPort, Group: TCPServices, On: OnService, Matches: true,
			Value:   "ports, separated by commas, each perhaps with `:` and the name or number of a port of the Service",
			Example: "5432:postgres", Default: "no port; the Service's port of the same number, or its only one",
			Summary: "Opens ports whose connections go to the Service without a look at requests. The administrator says in `tcpAnnotations` which ports may be opened. If the value of another `tcp-` option cannot be used, no port is opened.",
		}, listOf(connectionPort), func(s *Settings, v []ConnectionPort) { s.Connections.Ports = v }),
		define(Option{
			Name: "tcp-sni", Group: TCPServices, On: OnService, Matches: true, Needs: TCPPort,
			Value: "DNS names, separated by commas; `*.` is a wildcard for one label", Example: "db.example, *.db.example", Default: "all connections", most: mostText,
			Summary: "Only TLS connections that ask for one of these hosts go to the Service, so that several Services share a port. TLS is between the client and the Service, unless `tcp-tls-secret` is set.",
		}, listOf(alias), func(s *Settings, v []string) { s.Connections.SNI = v }),
		define(Option{
			Name: "tcp-tls-secret", Group: TCPServices, On: OnService, Matches: true, Needs: TCPPort,
			Value: "the name of a Secret of the same namespace", Example: "db-tls", Default: "no TLS, or that of the Service",
			Summary: "Ends TLS at HAProxy, with the certificate in this Secret.",
		}, secretName, func(s *Settings, v string) { s.Connections.Secret = v }),
		define(Option{
			Name: "tcp-proxy-protocol", Group: TCPServices, On: OnService, Matches: true, Needs: TCPPort,
			Value: "CIDRs or addresses, separated by commas", Example: "10.0.0.0/8", Default: "no network", most: mostText,
			Summary: "Connections from these networks must begin with a header of the PROXY protocol, which names the client's address. Services that share a port must agree.",
		}, listOf(network), func(s *Settings, v []netip.Prefix) { s.Connections.Trusted = v }),
	}
}

// connectionPort reads a port, perhaps with the one that it leads to.
func connectionPort(text string) (ConnectionPort, error) {
	port, target, both := strings.Cut(text, ":")
	n, err := number(1, 65535)(port)
	if err == nil && both {
		if _, numbered := number(1, 65535)(target); numbered != nil && len(validation.IsValidPortName(target)) > 0 {
			err = fault("names no port of a Service", "use such as 5432 or 5432:postgres")
		}
	}
	return ConnectionPort{n, target}, err
}

// secretName reads the name of a Secret.
func secretName(text string) (string, error) {
	if len(validation.IsDNS1123Subdomain(text)) > 0 {
		return "", fault("is not the name of a Secret", "name one of the same namespace, without the namespace")
	}
	return text, nil
}

// onConnections are the options that hold for connections whose requests are not
// looked at, by name.
var onConnections = map[string]bool{
	"balance": true, "max-connections": true, "max-queue": true, "slow-start": true, "retries": true,
	"health-check-path": true, "health-check-host": true, "health-check-status": true, "health-check-interval": true,
	"health-check-timeout": true, "health-check-rise": true, "health-check-fall": true,
	"backend-protocol": true, "backend-verify": true, "backend-sni": true, "backend-ca-secret": true, "backend-client-secret": true,
	"send-proxy-protocol": true,
	"timeout-connect":     true, "timeout-server": true, "timeout-queue": true, "timeout-tunnel": true,
	"allow-list": true, "deny-list": true, AllowCountries: true, DenyCountries: true,
}

// whole says what options that look at requests cannot be applied to.
const whole = "connections that are passed on as they are"

// ofServerTLS are those of them that say how HAProxy speaks TLS or HTTP to
// servers: where clients speak TLS to these, it does neither.
var ofServerTLS = map[string]bool{
	"health-check-path": true, "health-check-host": true, "health-check-status": true,
	"backend-protocol": true, "backend-verify": true, "backend-sni": true, "backend-ca-secret": true, "backend-client-secret": true,
}

// ForConnections is [Resolve] for connections whose requests are not looked at.
// With encrypted, they are known to hold TLS. An option that looks at requests is
// left out and reported; closed says that it protects something.
func ForConnections(encrypted bool, objects ...Values) (s Settings, problems map[int][]Problem, closed bool) {
	r := resolution{objects: objects}
	kept := make([]Values, len(objects))
	for i, v := range objects {
		kept[i].Closed = v.Closed
		for _, g := range v.given {
			if encrypted && ofServerTLS[g.option.Name] {
				continue
			}
			if g.option.Matches || onConnections[g.option.Name] {
				kept[i].given = append(kept[i].given, g)
			} else {
				switch { // the option needs a look at requests
				case g.option.Closes:
					r.closed = true
					r.report(diag.Error, g.option.Name, "cannot protect "+whole+"; they are refused", "remove it, or serve HTTP")
				case g.option.Group != Routing: // those are for plain HTTP all the same
					r.report(diag.Warning, g.option.Name, "has no effect on "+whole, "")
				}
			}
		}
	}
	s, problems, closed = Resolve(kept...)
	r.settings = s
	u := &r.settings.Upstream
	if u.Balance.By.NeedsHTTP() {
		r.report(diag.Warning, "balance", "looks at requests, and has no effect on "+whole, "use roundrobin, leastconn, random, first or source")
		u.Balance = policy.Balance{}
	}
	if u.TLS != nil && u.TLS.OfRequest {
		r.closed = true
		r.report(diag.Error, "backend-sni", "cannot be the host of a request for "+whole+"; they are refused", "name the host")
	}
	u.Protocol, u.FastCGI = policy.Opaque, nil
	for i, found := range problems {
		if r.problems == nil {
			r.problems = map[int][]Problem{}
		}
		r.problems[i] = slices.Concat(found, r.problems[i])
	}
	return r.settings, r.problems, closed || r.closed
}

// ServerSecrets are the names of Secrets, of the namespace of the object that
// asks, which TLS to servers needs; "" is none. See [policy.TLS] for what they
// become.
type ServerSecrets struct {
	Authorities, Certificate string
}

// serverTLS holds the options for TLS to the servers.
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
			Summary: "The certificate, in a Secret of type `kubernetes.io/tls`, that HAProxy presents to endpoints that ask for one. Without the Secret it presents a certificate that nobody trusts.",
		}, secretName, func(s *Settings, v string) { s.ServerSecrets.Certificate = v }),
		define(Option{
			Name: "backend-tls-versions", Group: Backends, On: onBoth, Closes: true, Value: "a version of TLS, or two with `-` in between: `1.0`, `1.1`, `1.2`, `1.3`", Example: "1.2-1.3",
			Summary: "The versions of TLS that HAProxy uses with endpoints.",
		}, tlsVersions, func(s *Settings, v [2]string) { s.servers.limits.MinVersion, s.servers.limits.MaxVersion = v[0], v[1] }),
		define(Option{
			Name: "backend-tls-ciphers", Group: Backends, On: onBoth, Closes: true, Value: "a list of ciphers as OpenSSL has it", Example: "HIGH:!aNULL:!AES128", most: mostText,
			Summary: "The ciphers that HAProxy offers to endpoints up to TLS 1.2. It always offers those of TLS 1.3.",
		}, cipherList, func(s *Settings, v string) { s.servers.limits.Ciphers = v }),
		define(Option{
			Name: "backend-sni", Group: Backends, On: onBoth, Closes: true, Value: "a DNS name, or `request-host`", Example: "internal.example",
			Summary: "The server name (SNI) that HAProxy sends to endpoints over TLS. Without it, HAProxy 3.3 and later send the host of the request, and older versions none.",
		}, serverName, func(s *Settings, v policy.TLS) { s.servers.sni = v }),
	}
}

// WithoutServerTLS leaves out what says how servers are known over TLS, and reports whether there was any
// of it. That they are spoken to over TLS stays.
func (v Values) WithoutServerTLS() (Values, bool) {
	out := Values{Closed: v.Closed}
	for _, g := range v.given {
		switch g.option.Name {
		case "backend-verify", "backend-ca-secret", "backend-client-secret", "backend-tls-versions", "backend-tls-ciphers", "backend-sni":
		default:
			out.given = append(out.given, g)
		}
	}
	return out, len(out.given) < len(v.given)
}

// tls joins the options for TLS to the servers. An object that asks for certificates to be verified, or to be shown, must
// not be served without that.
func (r *resolution) tls() {
	s := &r.settings
	if !s.servers.on {
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
			Summary: "Redirects clients without a certificate to this URL, with 302, instead of ending their connection. The connection of a client with a certificate of another authority still ends. The same option must not protect the URL.",
		}, signIn, func(s *Settings, v string) { s.Clients.Check.ErrorPage = v }),
		define(Option{
			Name: "client-cert-headers", Group: Protecting, On: OnIngress, Closes: true, Needs: "client-ca-secret",
			Value: "`none`, or some of `verify`, `dn`, `issuer-dn`, `sha1`, `sha256`, `cert`, and `ssl-client-verify`, `ssl-client-subject-dn`, `ssl-client-issuer-dn`, `ssl-client-cert`, separated by commas", Example: "verify, dn, sha256", Default: "`verify, dn`",
			Summary: "What endpoints get of the client's certificate: X-SSL-Client-Verify (`SUCCESS` or `NONE`), X-SSL-Client-DN and X-SSL-Client-Issuer-DN (RFC 4514), X-SSL-Client-SHA1 and X-SSL-Client-SHA256 (hexadecimal), X-SSL-Client-Cert (DER in base64). The last four are headers of these names, as ingress-nginx writes them; the last is PEM, percent-encoded. With `client-ca-secret`, every header whose name begins with X-SSL-Client- or SSL-Client- is removed from what clients send; an endpoint that trusts these headers must have no route without it.",
		}, certificateFields, func(s *Settings, v []policy.CertificateField) { s.Clients.Check.Forward = v }),
	}
}

// certificateFields reads what is told of a certificate, each thing once.
func certificateFields(text string) ([]policy.CertificateField, error) {
	if text == "none" {
		return []policy.CertificateField{}, nil
	}
	known := map[string]policy.CertificateField{}
	for _, f := range policy.CertificateFields() {
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

// clients fills empty fields. An object that asks for client certificates without naming an authority must not be served
// without them.
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
