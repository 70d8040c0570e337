package options

import (
	"net/netip"
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
		r.merge(i, found)
	}
	return r.settings, r.problems, closed || r.closed
}

// merge adds problems of one object.
func (r *resolution) merge(i int, found []Problem) {
	if r.problems == nil {
		r.problems = map[int][]Problem{}
	}
	r.problems[i] = slices.Concat(found, r.problems[i])
}
