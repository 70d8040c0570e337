package snapshots

import (
	"cmp"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"

	"github.com/hapsnap/hapsnap/internal/objectname"
	"github.com/hapsnap/hapsnap/internal/yamltext"
)

// ServicePort names one port of a Service by the port's name, as EndpointSlices do. The
// name is empty if the Service has one port without a name.
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
	name, err := objectname.Parse(object)
	if err != nil || strings.HasSuffix(s, ":") || strings.Contains(port, ":") {
		return ServicePort{}, fmt.Errorf("%q is not namespace/service:port", s)
	}
	return ServicePort{name.Namespace, name.Name, port}, nil
}

// Compare orders by namespace, service and port.
func (p ServicePort) Compare(o ServicePort) int {
	return cmp.Or(cmp.Compare(p.Namespace, o.Namespace), cmp.Compare(p.Service, o.Service), cmp.Compare(p.Port, o.Port))
}

// Endpoint is one address behind a Service port. Draining is set for an endpoint that is
// serving and terminating. It takes new sessions only if all endpoints of the Service are
// terminating.
type Endpoint struct {
	Address  string `json:"address"` // an IP address
	Port     int    `json:"port"`
	Draining bool   `json:"draining,omitempty"`
}

// Compare orders by address and port.
func (e Endpoint) Compare(o Endpoint) int {
	return cmp.Or(cmp.Compare(e.Address, o.Address), cmp.Compare(e.Port, o.Port))
}

// EndpointsKind is the KRM kind of endpoints.yaml.
const EndpointsKind = "Endpoints"

// endpointsFile is the content of endpoints.yaml: the endpoints that the compiler saw.
type endpointsFile struct {
	APIVersion string             `json:"apiVersion"`
	Kind       string             `json:"kind"`
	Services   []serviceEndpoints `json:"services"`
}

type serviceEndpoints struct {
	Namespace string     `json:"namespace"`
	Service   string     `json:"service"`
	Port      string     `json:"port,omitempty"`
	Endpoints []Endpoint `json:"endpoints"`
}

// MarshalEndpoints returns the content of endpoints.yaml, sorted, so that the same
// endpoints give the same bytes.
func MarshalEndpoints(endpoints map[ServicePort][]Endpoint) ([]byte, error) {
	f := endpointsFile{APIVersion: APIVersion, Kind: EndpointsKind, Services: []serviceEndpoints{}}
	for _, service := range slices.SortedFunc(maps.Keys(endpoints), ServicePort.Compare) {
		list := slices.SortedFunc(slices.Values(endpoints[service]), Endpoint.Compare)
		if list == nil {
			list = []Endpoint{}
		}
		f.Services = append(f.Services, serviceEndpoints{service.Namespace, service.Service, service.Port, list})
	}
	return yamltext.Marshal(f)
}

// ParseEndpoints reads what [MarshalEndpoints] wrote. Errors wrap [ErrCorrupt].
func ParseEndpoints(data []byte) (map[ServicePort][]Endpoint, error) {
	var f endpointsFile
	if err := DecodeYAML(data, MaxFile, &f); err != nil {
		return nil, fmt.Errorf("%w: read %s: %w", ErrCorrupt, EndpointsFile, err)
	}
	if f.APIVersion != APIVersion || f.Kind != EndpointsKind {
		return nil, fmt.Errorf("%w: %s is %q %q, not %s %s", ErrCorrupt, EndpointsFile, f.APIVersion, f.Kind, APIVersion, EndpointsKind)
	}
	out := make(map[ServicePort][]Endpoint, len(f.Services))
	for _, s := range f.Services {
		service := ServicePort{s.Namespace, s.Service, s.Port}
		if _, twice := out[service]; twice {
			return nil, fmt.Errorf("%w: %s has %s twice", ErrCorrupt, EndpointsFile, service)
		}
		if err := checkEndpoints(s.Endpoints); err != nil {
			return nil, fmt.Errorf("%w: %s: %s: %w", ErrCorrupt, EndpointsFile, service, err)
		}
		out[service] = s.Endpoints
	}
	return out, nil
}

func checkEndpoints(endpoints []Endpoint) error {
	for i, e := range endpoints {
		if ip, err := netip.ParseAddr(e.Address); err != nil || ip.Zone() != "" {
			return fmt.Errorf("%q is not an IP address", e.Address)
		}
		if e.Port < 1 || e.Port > 65535 {
			return fmt.Errorf("%d is not a port", e.Port)
		}
		if i > 0 && endpoints[i-1].Compare(e) >= 0 {
			return fmt.Errorf("%s is out of order or there twice", e.Address)
		}
	}
	return nil
}

// RecordedEndpoints returns the endpoints that are recorded in the snapshot, and whether it
// has an endpoints.yaml. A snapshot without that file is bound to live endpoints; one with
// an empty file is bound to none.
func (s Snapshot) RecordedEndpoints() (endpoints map[ServicePort][]Endpoint, recorded bool, err error) {
	data, ok := s.File(EndpointsFile)
	if !ok {
		return nil, false, nil
	}
	endpoints, err = ParseEndpoints(data)
	return endpoints, true, err
}
