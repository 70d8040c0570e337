package snapshots

import (
	"cmp"
	"fmt"
	"strings"
)

// ServicePort names one port of a Service, as EndpointSlices know it: by the
// name of the Service's port, which is empty where a Service has one port
// without a name.
type ServicePort struct {
	Namespace, Service, Port string
}

// String returns "namespace/service:port", or "namespace/service" for the
// port without a name. [ParseServicePort] reads it.
func (p ServicePort) String() string {
	if p.Port == "" {
		return p.Namespace + "/" + p.Service
	}
	return p.Namespace + "/" + p.Service + ":" + p.Port
}

// ParseServicePort reads what [ServicePort.String] wrote.
func ParseServicePort(s string) (ServicePort, error) {
	object, port, _ := strings.Cut(s, ":")
	name, err := ParseSecretName(object)
	if err != nil || strings.HasSuffix(s, ":") || strings.Contains(port, ":") {
		return ServicePort{}, fmt.Errorf("%q is not namespace/service:port", s)
	}
	return ServicePort{name.Namespace, name.Name, port}, nil
}

// Compare orders by namespace, service and port.
func (p ServicePort) Compare(o ServicePort) int {
	return cmp.Or(cmp.Compare(p.Namespace, o.Namespace), cmp.Compare(p.Service, o.Service), cmp.Compare(p.Port, o.Port))
}

// Endpoint is one address behind a Service port. Draining is set for an
// endpoint that is serving and terminating: it takes no new sessions, unless all
// endpoints of the Service are.
type Endpoint struct {
	Address  string `json:"address"` // an IP address
	Port     int    `json:"port"`
	Draining bool   `json:"draining,omitempty"`
}

func (e Endpoint) compare(o Endpoint) int {
	return cmp.Or(cmp.Compare(e.Address, o.Address), cmp.Compare(e.Port, o.Port))
}

// Live is the live data that a snapshot is bound to: what is true now,
// whatever the age of the snapshot. Endpoints are sorted by address and port,
// without duplicates. Whatever comes from Secrets must not be shown to anybody.
type Live struct {
	Endpoints map[ServicePort][]Endpoint
	// Certificates hold PEM: the chain, then the private key.
	Certificates map[SecretName][]byte
	// Expired are those of the certificates that are not to be served any more.
	Expired map[SecretName]bool
	// Versions are the certificates, as PEM, that references to versions are to, by
	// version; those that are at hand.
	Versions map[string][]byte
	// ExpiredVersions are those of them that are not to be served any more.
	ExpiredVersions map[string]bool
	// Authorities are what [ParseAuthorities] returned.
	Authorities map[SecretName][]byte
	// Users are what [ParseHtpasswd] returned.
	Users map[SecretName][]User
	// Values are what [SecretValue] returned, for words of haproxy.cfg to stand for,
	// see [SecretWord].
	Values map[SecretKey]string
	// Fallback is the PEM of the certificate that is served where no other
	// fits. It belongs to the pusher, not to any Secret.
	Fallback []byte
}
