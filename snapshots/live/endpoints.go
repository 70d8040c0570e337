package live

import (
	"cmp"
	"net/netip"
	"slices"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"

	"github.com/hapsnap/hapsnap/snapshots"
)

// Endpoints returns the endpoints behind each Service port that has any, sorted
// and each once, whatever slices they are in.
//
// A ready endpoint is an endpoint; one that is not ready, but still serving
// while it terminates, is draining; any other is left out, and so are ports
// without a number or not of TCP, and addresses that are not IP addresses. Of
// several addresses of one endpoint the first counts, as in kube-proxy: the API
// gives the others no meaning.
func Endpoints(endpointSlices []discoveryv1.EndpointSlice) map[snapshots.ServicePort][]snapshots.Endpoint {
	draining := map[snapshots.ServicePort]map[address]bool{}
	for _, slice := range endpointSlices {
		service := slice.Labels[discoveryv1.LabelServiceName]
		if service == "" || slice.AddressType == discoveryv1.AddressTypeFQDN {
			continue
		}
		for _, port := range slice.Ports {
			number, ok := tcpPort(port)
			if !ok {
				continue
			}
			key := snapshots.ServicePort{Namespace: slice.Namespace, Service: service, Port: deref(port.Name, "")}
			if draining[key] == nil {
				draining[key] = map[address]bool{}
			}
			collect(draining[key], slice.Endpoints, number)
		}
	}
	out := make(map[snapshots.ServicePort][]snapshots.Endpoint, len(draining))
	for key, found := range draining {
		if len(found) > 0 {
			out[key] = sorted(found)
		}
	}
	return out
}

// address is where an endpoint is.
type address struct {
	ip   string
	port int
}

// collect notes for each endpoint whether it is draining. An endpoint that some slice
// says is ready is not: while the control plane moves an endpoint from slice to
// slice, it may be in both.
func collect(draining map[address]bool, endpoints []discoveryv1.Endpoint, port int) {
	for _, e := range endpoints {
		ip, ok := firstAddress(e)
		ready := deref(e.Conditions.Ready, true)
		leaving := deref(e.Conditions.Serving, ready) && deref(e.Conditions.Terminating, false)
		if !ok || (!ready && !leaving) {
			continue
		}
		at := address{ip, port}
		known, seen := draining[at]
		draining[at] = !ready && (known || !seen)
	}
}

// tcpPort returns the number of a port that HAProxy can connect to. A slice
// without one means all ports, which a proxy cannot follow.
func tcpPort(port discoveryv1.EndpointPort) (int, bool) {
	number := int(deref(port.Port, 0))
	return number, number > 0 && number <= 65535 && deref(port.Protocol, corev1.ProtocolTCP) == corev1.ProtocolTCP
}

// firstAddress returns the endpoint's address in its canonical form, so that
// two spellings are one endpoint.
func firstAddress(e discoveryv1.Endpoint) (string, bool) {
	if len(e.Addresses) == 0 {
		return "", false
	}
	ip, err := netip.ParseAddr(e.Addresses[0])
	if err != nil || ip.Zone() != "" || ip.IsUnspecified() {
		return "", false
	}
	return ip.String(), true
}

func sorted(draining map[address]bool) []snapshots.Endpoint {
	out := make([]snapshots.Endpoint, 0, len(draining))
	for at, drains := range draining {
		out = append(out, snapshots.Endpoint{Address: at.ip, Port: at.port, Draining: drains})
	}
	slices.SortFunc(out, func(a, b snapshots.Endpoint) int {
		return cmp.Or(cmp.Compare(a.Address, b.Address), cmp.Compare(a.Port, b.Port))
	})
	return out
}

func deref[T any](p *T, unset T) T {
	if p == nil {
		return unset
	}
	return *p
}
