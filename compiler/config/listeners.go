package config

import (
	"errors"
	"fmt"
	"net/netip"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/hapsnap/hapsnap/compiler/config/field"
	"github.com/hapsnap/hapsnap/compiler/config/transport"
	"github.com/hapsnap/hapsnap/internal/objectname"
	"github.com/hapsnap/hapsnap/snapshots"
	"github.com/hapsnap/hapsnap/snapshots/sealing"
)

// Bind says where HAProxy listens.
type Bind struct {
	// Addresses are IP addresses, "*" for all of IPv4, "::" for all of both
	// families, or one environment variable such as "${POD_IP}", which HAProxy
	// expands when it starts.
	Addresses []string `json:"addresses"`
}

// Listener is a frontend. With port 0 it does not exist.
type Listener struct {
	// Port is the TCP port. With 0 there is no such listener.
	Port int `json:"port"`
}

// HTTPSListener is the frontend for HTTPS.
type HTTPSListener struct {
	// Port is the TCP port. With 0 there is no such listener.
	Port int `json:"port"`
	// DefaultCertificate is a Secret, as namespace/name, whose certificate HAProxy serves
	// to clients that name no host, or a host without a certificate of its own. Without it,
	// or while the Secret has no usable certificate, HAProxy serves the pusher's fallback
	// certificate, which no client trusts.
	DefaultCertificate string `json:"defaultCertificate"`
	// HTTP2 offers HTTP/2 besides HTTP/1.1.
	HTTP2 bool `json:"http2"`
	// HTTP3 also offers HTTP/3.
	HTTP3 HTTP3 `json:"http3"`
}

// HTTP3 is the listener for HTTP/3, on the UDP port with the number of the TCP port.
type HTTP3 struct {
	// Enabled opens the UDP port. This needs HAProxy 3.0 or later that was built with QUIC,
	// which not every distribution's is. A variable in bind.addresses counts as an IPv4
	// address.
	Enabled bool `json:"enabled"`
	// AdvertisedPort is the port that the header Alt-Svc names to clients, if clients reach
	// the listener on another port. 0 stands for the listener's own port.
	AdvertisedPort int `json:"advertisedPort"`
}

// AltSvcPort returns the port at which clients find HTTP/3.
func (l HTTPSListener) AltSvcPort() int {
	if l.HTTP3.AdvertisedPort != 0 {
		return l.HTTP3.AdvertisedPort
	}
	return l.Port
}

// checkListeners checks the ports, and that each is opened only once.
func (c Config) checkListeners(f field.Errors) {
	seen := map[int]bool{}
	for _, l := range c.listeners() {
		at := f
		for _, name := range l.path {
			at = at.At(name)
		}
		at.Add(checkPort(l.port), "use 1 to 65535, or 0 for no such listener")
		if seen[l.port] && l.port != 0 {
			at.Add("is the port of another listener", "give each listener a port of its own")
		}
		seen[l.port] = true
	}
	if c.HTTP.Port == 0 && c.HTTPS.Port == 0 && c.GatewayAPI.Fleet == "" { // a fleet of Gateways has their ports
		f.At("http").At("port").Add("is 0, like that of https: nothing would be served", "set one of them")
	}
}

func (l HTTPSListener) check(f field.Errors, tls transport.TLS) {
	if l.DefaultCertificate != "" {
		f.At("defaultCertificate").Add(checkShared(l.DefaultCertificate), "use the namespace and the name of a Secret")
	}
	h3 := f.At("http3")
	h3.At("advertisedPort").Add(checkPort(l.HTTP3.AdvertisedPort), "use 1 to 65535, or 0 for that of the listener")
	switch {
	case !l.HTTP3.Enabled:
	case l.Port == 0:
		h3.At("enabled").Add("needs a listener for HTTPS", "set https.port")
	case !tls.Effective().Speaks13():
		h3.At("enabled").Add("needs TLS 1.3, which is not accepted", "raise tls.maxVersion")
	}
}

func (b Bind) check(f field.Errors) {
	at := f.At("addresses")
	if len(b.Addresses) == 0 {
		at.Add("is empty: nothing would be served", addressHint)
	}
	checkAddresses(at, b.Addresses)
}

const addressHint = `use IP addresses, "*", or one "${VARIABLE}"`

func checkAddresses(f field.Errors, addresses []string) {
	for i, a := range addresses {
		if _, err := netip.ParseAddr(a); err != nil && a != "*" && !field.IsVariable(a) {
			f.Element(i).Add(fmt.Sprintf("%q is not an address", a), addressHint)
		}
	}
}

func (p ProxyProtocol) check(f field.Errors) {
	checkNetworks(f.At("trusted"), p.Trusted)
}

func checkPort(port int) string {
	if port >= 0 && port <= 65535 {
		return ""
	}
	return fmt.Sprintf("%d is not a port", port)
}

// Status is the listener for monitoring and load balancers.
type Status struct {
	// Port is the TCP port. With 0 there is no such listener.
	Port int `json:"port"`
	// Addresses are the addresses to listen on, in the form of bind.addresses. If empty,
	// they are those of bind.addresses.
	Addresses []string `json:"addresses"`
	// Prometheus is HAProxy's own metrics exporter.
	Prometheus StatusPage `json:"prometheus"`
	// Stats is HAProxy's statistics page, for people. It allows no changes.
	Stats StatusPage `json:"stats"`
	// Ready says when /ready fails.
	Ready Ready `json:"ready"`
}

// StatusPage is a page of the status listener.
type StatusPage struct {
	// Enabled serves it.
	Enabled bool `json:"enabled"`
	// Path is where it is served.
	Path string `json:"path"`
}

// Ready says when /ready fails.
type Ready struct {
	// MinBackendsPercent is the percentage of backends that must have a usable server. All
	// backends whose Service exists count: backends for requests, for connections that are
	// passed on, and for TCP services. Backends with an external name do not count, since
	// HAProxy finds their servers anew after each reload. A backend has no usable server if its
	// Service has no ready endpoint, or health checks found all servers down. HAProxy counts
	// them at most once a second. With 0 it does not count them.
	MinBackendsPercent int `json:"minBackendsPercent"`
	// Services are Services, each as namespace/name. Each must have a backend with a usable
	// server. A Service with an external name does not count, since HAProxy finds its
	// servers anew after each reload. Neither does a Service without a backend, such as one
	// whose Ingress is gone.
	Services []string `json:"services"`
	// MaxQueued is how many requests may wait for a server, in all backends together. With
	// more, this instance takes no new clients until it has fewer. 0 does not count them.
	MaxQueued int `json:"maxQueued"`
}

// Counts reports whether /ready looks at backends.
func (r Ready) Counts() bool {
	return r.MinBackendsPercent > 0 || len(r.Services) > 0 || r.MaxQueued > 0
}

// The paths of the status listener that no page can have.
const (
	healthPath = "/healthz"
	readyPath  = "/ready"
)

// StatusAddresses returns where the status listener listens.
func (c Config) StatusAddresses() []string {
	if len(c.Status.Addresses) > 0 {
		return c.Status.Addresses
	}
	return c.Bind.Addresses
}

// pathForm matches valid paths of the status listener.
var pathForm = regexp.MustCompile(`^(/[A-Za-z0-9._~-]{1,64}){1,8}$`)

func (s Status) check(f field.Errors) {
	checkAddresses(f.At("addresses"), s.Addresses)
	taken := []string{healthPath, readyPath}
	for _, page := range []struct {
		name string
		StatusPage
	}{{"prometheus", s.Prometheus}, {"stats", s.Stats}} {
		at := f.At(page.name).At("path")
		switch {
		case !pathForm.MatchString(page.Path):
			at.Add(fmt.Sprintf("%q is not a path of plain words", page.Path), "use one such as /metrics")
		case slices.Contains(taken, page.Path):
			at.Add(fmt.Sprintf("%s is the path of another page", page.Path), "give each page a path of its own")
		}
		taken = append(taken, page.Path)
	}
	for i, name := range s.Ready.Services {
		f.At("ready").At("services").Element(i).Add(checkShared(name), "use the namespace and the name of a Service, such as shop/web")
	}
	if n := s.Ready.MaxQueued; n < 0 {
		f.At("ready").At("maxQueued").Add(fmt.Sprintf("%d is not a number of requests", n), "use 1 or more, or 0 not to count them")
	}
	if n := s.Ready.MinBackendsPercent; n < 0 || n > 100 {
		f.At("ready").At("minBackendsPercent").Add(fmt.Sprintf("%d is not a percentage", n), "use 0 to 100")
	}
}

// Certificates says which certificates a snapshot is served with. Everything else in
// Secrets (authorities, users and values) is always taken as it is when a snapshot is
// pushed.
type Certificates struct {
	// Mode says where the certificates come from.
	//
	// With reference, a snapshot names Secrets, and HAProxy serves the certificates that
	// they hold at the time. A renewed certificate makes no new snapshot, and needs no
	// reload.
	//
	// With the other modes HAProxy serves the certificates that the compiler saw. A renewed
	// certificate makes a new snapshot, with a rollout. With exact, the pusher takes the
	// certificates from the Secrets, and waits while these hold others. With sealed, they
	// are in the snapshot, encrypted, and the pusher needs none of the Secrets. With
	// companion, they are in Secrets beside the snapshot, which only a store in a cluster
	// can have.
	Mode CertificateMode `json:"mode"`
	// Recipients are the age recipients that can decrypt sealed certificates, such as
	// age1vumrp0fh3mgp9lnp58s2l5m7m26jvck2kja0au70075qlzaapgcqgjzpf9. List the public key
	// of each pusher, and of everybody else who may decrypt them. When the list changes,
	// everything is sealed again, into a new snapshot.
	Recipients []string `json:"recipients"`
}

// CertificateMode is one of the modes.
type CertificateMode string

// The modes.
const (
	ReferenceCertificates CertificateMode = "reference"
	ExactCertificates     CertificateMode = "exact"
	SealedCertificates    CertificateMode = "sealed"
	CompanionCertificates CertificateMode = "companion"
)

var certificateModes = map[CertificateMode]snapshots.CertificateMode{
	ReferenceCertificates: snapshots.ModeReference,
	ExactCertificates:     snapshots.ModeExact,
	SealedCertificates:    snapshots.ModeSealed,
	CompanionCertificates: snapshots.ModeCompanion,
}

// RefMode returns the mode as references have it.
func (c Certificates) RefMode() snapshots.CertificateMode { return certificateModes[c.Mode] }

func (c Certificates) check(f field.Errors) {
	if _, known := certificateModes[c.Mode]; !known {
		f.At("mode").Add(fmt.Sprintf("%q is none of reference, exact, sealed and companion", string(c.Mode)), "use one of them")
	}
	recipients := f.At("recipients")
	for i, text := range c.Recipients {
		if _, err := sealing.ParseRecipient(text); err != nil { // it may be an identity, so the message does not repeat it
			recipients.Element(i).Add(err.Error(), "use the public key that age-keygen printed, which begins with age1")
		}
	}
	if recipients.Any() {
		return
	}
	switch _, err := sealing.NewRecipients(c.Recipients); {
	case c.Mode == SealedCertificates && errors.Is(err, sealing.ErrNoRecipient):
		recipients.Add("no recipient is named, so certificates cannot be sealed", "make a key with age-keygen -o identity.txt, and name its public key here")
	case c.Mode != SealedCertificates && len(c.Recipients) > 0:
		recipients.Add("are never used: certificates are not sealed", "set mode: sealed, or leave them out")
	case err != nil && len(c.Recipients) > 0:
		recipients.Add(err.Error(), "use one kind")
	}
}

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
	return field.HasPort(a.Ports, port)
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
	field.CheckPorts(f.At("tcpAnnotations").At("ports"), c.TCPAnnotations.Ports)
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
