package options

import (
	"net/netip"
	"strings"

	"k8s.io/apimachinery/pkg/util/validation"
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
			Summary: "Opens ports whose connections go to the Service as they are. The administrator says in `tcpAnnotations` which ports may be opened. If the value of another `tcp-` option cannot be used, no port is opened.",
		}, listOf(connectionPort), func(s *Settings, v []ConnectionPort) { s.Connections.Ports = v }),
		define(Option{
			Name: "tcp-sni", Group: TCPServices, On: OnService, Matches: true, Needs: TCPPort,
			Value: "DNS names, separated by commas; `*.` is a wildcard for one label", Example: "db.example, *.db.example", Default: "all connections", most: mostText,
			Summary: "Only TLS connections that ask for one of these hosts go to the Service, so that several Services share a port. TLS is between the client and the Service, unless `tcp-tls-secret` is set.",
		}, listOf(alias), func(s *Settings, v []string) { s.Connections.SNI = v }),
		define(Option{
			Name: "tcp-tls-secret", Group: TCPServices, On: OnService, Matches: true, Needs: TCPPort,
			Value: "the name of a Secret of the same namespace", Example: "db-tls", Default: "no TLS, or that of the Service",
			Summary: "TLS ends at HAProxy, with the certificate of this Secret.",
		}, secretName, func(s *Settings, v string) { s.Connections.Secret = v }),
		define(Option{
			Name: "tcp-proxy-protocol", Group: TCPServices, On: OnService, Matches: true, Needs: TCPPort,
			Value: "CIDRs or addresses, separated by commas", Example: "10.0.0.0/8", Default: "no network", most: mostText,
			Summary: "Connections of these networks must begin with a header of the PROXY protocol, which tells the client's address. Services that share a port must agree.",
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
