package config

import (
	"fmt"
	"net/netip"
	"slices"
	"strconv"
	"strings"

	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/hapsnap/hapsnap/compiler/config/field"
	"github.com/hapsnap/hapsnap/internal/objectname"
)

// TCPService is a port whose connections go to a Service without a look at requests.
type TCPService struct {
	// Port is the port that HAProxy opens, on the addresses of bind.
	Port int `json:"port"`
	// Service is where connections go, as namespace/name:port with the name or the number
	// of a port of the Service. Annotations of the Service that make sense for connections
	// apply.
	Service string `json:"service"`
	// SNI are the host names that TLS connections must ask for to go to this Service, so
	// that several entries can share a port; "*." matches one label. Connections that ask
	// for none of them go to the entry of the port without sni, or are closed if there is
	// none. Unless tls.secret is set, TLS is between the client and the Service.
	SNI []string `json:"sni"`
	// TLS says whether TLS ends at HAProxy.
	TLS TCPServiceTLS `json:"tls"`
	// ProxyProtocol says which senders may name the client's address. All entries of a port
	// must agree.
	ProxyProtocol ProxyProtocol `json:"proxyProtocol"`
	// SendProxyProtocol is the version of the PROXY protocol, 1 or 2, that HAProxy uses to
	// send the client's address to endpoints. 0 leaves it to the Service's annotation.
	SendProxyProtocol int `json:"sendProxyProtocol"`
}

// TCPServiceTLS says how TLS ends at HAProxy.
type TCPServiceTLS struct {
	// Secret is the certificate, as namespace/name. Without it TLS, if any, is
	// between the client and the Service.
	Secret string `json:"secret"`
}

// ProxyProtocol says which senders may name the addresses of clients.
type ProxyProtocol struct {
	// Trusted are the networks whose connections must begin with a header of the PROXY
	// protocol, version 1 or 2. Connections from other networks must not, and count as
	// coming from their own address.
	Trusted []string `json:"trusted"`
}

// TCPAnnotations says what Services may open by annotation.
type TCPAnnotations struct {
	// Ports are the ports that annotations may open: numbers, and ranges such as 9000-9099.
	// If empty, hapsnap.dev/tcp-port is refused. A port that another process uses where
	// HAProxy runs makes the reload fail, and no check finds that before.
	Ports []string `json:"ports"`
	// Namespaces are the namespaces whose Services may open ports.
	Namespaces Namespaces `json:"namespaces"`
}

// Namespaces is a list of namespaces, or "*" for all of them.
type Namespaces []string

// Has reports whether the list contains a namespace.
func (n Namespaces) Has(namespace string) bool {
	return slices.Contains(n, "*") || slices.Contains(n, namespace)
}

// AllowsPort reports whether annotations may open a port.
func (a TCPAnnotations) AllowsPort(port int) bool {
	return slices.ContainsFunc(a.Ports, func(text string) bool {
		first, last, err := portRange(text)
		return err == nil && first <= port && port <= last
	})
}

// portRange reads "80" or "9000-9099".
func portRange(text string) (first, last int, err error) {
	from, to, both := strings.Cut(text, "-")
	if !both {
		to = from
	}
	first, err = strconv.Atoi(from)
	if err == nil {
		last, err = strconv.Atoi(to)
	}
	if err != nil || first < 1 || last > 65535 || first > last {
		return 0, 0, fmt.Errorf("%q is neither a port nor a range of ports", text)
	}
	return first, last, nil
}

// Target splits the Service of a valid entry.
func (s TCPService) Target() (namespace, name, port string) {
	service, port, _ := strings.Cut(s.Service, ":")
	object, _ := objectname.Parse(service)
	return object.Namespace, object.Name, port
}

// CertificateSecret splits the Secret of a valid entry; both parts are "" if
// there is none.
func (s TCPService) CertificateSecret() (namespace, name string) {
	object, _ := objectname.Parse(s.TLS.Secret)
	return object.Namespace, object.Name
}

// Networks returns the networks of a valid list.
func (p ProxyProtocol) Networks() []netip.Prefix { return field.Networks(p.Trusted) }

// Ports returns the ports of the listeners that are not TCP services, and their purposes.
func (c Config) Ports() map[int]string {
	out := map[int]string{}
	for _, l := range c.listeners() {
		if l.port != 0 {
			out[l.port] = "the listener for " + l.path[0]
		}
	}
	return out
}

// checkTCP checks the TCP services.
func (c Config) checkTCP(f field.Errors) {
	type claim struct {
		port int
		host string
	}
	taken := map[claim]bool{}
	for i, s := range c.TCPServices {
		at := f.At("tcpServices").Element(i)
		s.check(at)
		c.checkTCPPort(at.At("port"), s.Port)
		hosts, sni := s.SNI, at.At("sni")
		if len(hosts) == 0 {
			hosts, sni = []string{""}, at.At("port")
		}
		for _, host := range hosts {
			if taken[claim{s.Port, host}] {
				sni.Add("is that of an entry further up", "entries of one port must differ in sni")
			}
			taken[claim{s.Port, host}] = true
		}
	}
	for i, text := range c.TCPAnnotations.Ports {
		if _, _, err := portRange(text); err != nil {
			f.At("tcpAnnotations").At("ports").Element(i).Add(err.Error(), "use such as 5432 or 9000-9099")
		}
	}
	c.TCPAnnotations.Namespaces.check(f.At("tcpAnnotations").At("namespaces"))
}

// checkTCPPort refuses the ports of the other listeners.
func (c Config) checkTCPPort(at field.Errors, port int) {
	if port < 1 || port > 65535 {
		at.Add(fmt.Sprintf("%d is not a port", port), "use 1 to 65535")
	}
	for _, l := range c.listeners() {
		if l.port == port && port != 0 {
			at.Add("is the port of "+strings.Join(l.path, "."), "give each listener a port of its own")
		}
	}
}

// check checks an entry alone.
func (s TCPService) check(at field.Errors) {
	namespace, name, port := s.Target()
	if !isName(namespace) || !isName(name) || !isServicePort(port) {
		at.At("service").Add(fmt.Sprintf("%q is not a port of a Service", s.Service), "use namespace/name:port")
	}
	for i, host := range s.SNI {
		if len(validation.IsDNS1123Subdomain(strings.TrimPrefix(host, "*."))) > 0 {
			at.At("sni").Element(i).Add(fmt.Sprintf("%q is not the name of a host", host), "use a DNS name in lower case, perhaps with *. before it")
		}
	}
	if namespace, name := s.CertificateSecret(); s.TLS.Secret != "" && (!isName(namespace) || !isName(name)) {
		at.At("tls").At("secret").Add(fmt.Sprintf("%q is not a Secret", s.TLS.Secret), "use namespace/name")
	}
	s.ProxyProtocol.check(at.At("proxyProtocol"))
	if s.SendProxyProtocol < 0 || s.SendProxyProtocol > 2 {
		at.At("sendProxyProtocol").Add(fmt.Sprintf("%d is not a version of the PROXY protocol", s.SendProxyProtocol), "use 1 or 2, or 0 for none")
	}
}

func (n Namespaces) check(at field.Errors) {
	for i, name := range n {
		if name != "*" && len(validation.IsDNS1123Label(name)) > 0 {
			at.Element(i).Add(fmt.Sprintf("%q is not a namespace", name), "use names of namespaces, or * for all")
		}
	}
}

// isName reports whether a text can be the name of an object.
func isName(text string) bool { return len(validation.IsDNS1123Subdomain(text)) == 0 }

// isServicePort reports whether a text can name a port, or number one.
func isServicePort(text string) bool {
	if n, err := strconv.Atoi(text); err == nil {
		return n >= 1 && n <= 65535 && strconv.Itoa(n) == text
	}
	return len(validation.IsValidPortName(text)) == 0
}
