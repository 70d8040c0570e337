// Package live translates Kubernetes objects into the live data that snapshots are bound to:
// EndpointSlices into endpoints, Secrets into certificates, authorities, users and values.
//
// Its functions are pure, and their results do not depend on the order of the objects. Callers read the
// objects, from a cluster or from files, and decide what to do about a Secret that is broken.
//
// # Decisions
//
// Hashes that take long are refused or reported. HAProxy checks a password on the thread of its
// connections at every request, and tries every hash when it loads the configuration: a hash of 10 ms
// gets a warning; one of 500 ms, or a list of 5 s, is refused.
package live

import (
	"cmp"
	"fmt"
	"net/netip"
	"slices"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"

	"github.com/hapsnap/hapsnap/snapshots"
)

// Endpoints returns the endpoints behind each Service port that has any, sorted and each once, in whichever
// slices they are.
//
// A ready endpoint is usable. One that is not ready, but still serves while it terminates, is draining.
// Endpoints leaves out all others, and ports without a number or not of TCP, and addresses that are not IP
// addresses. Of several addresses of one endpoint only the first counts, as in kube-proxy: the API gives the
// others no meaning.
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

// address is the address and port of an endpoint.
type address struct {
	ip   string
	port int
}

// collect records for each endpoint whether it is draining. An endpoint that some slice calls ready is not
// draining: while the control plane moves an endpoint from slice to slice, both may have it.
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

// DefaultRefused are networks in which no endpoint may be: this host, the link, broadcast, the unspecified
// address, and the services of clouds that give machines their credentials. IPv6 addresses that embed a refused IPv4
// address are refused too.
var DefaultRefused = []netip.Prefix{
	// Most clouds have these services in 169.254.0.0/16. These are the others: Alibaba, Azure, Oracle, AWS and Google.
	netip.MustParsePrefix("100.100.100.200/32"), netip.MustParsePrefix("168.63.129.16/32"), netip.MustParsePrefix("192.0.0.192/32"),
	netip.MustParsePrefix("fd00:ec2::/32"), netip.MustParsePrefix("fd20:ce::254/128"),
	netip.MustParsePrefix("0.0.0.0/8"), netip.MustParsePrefix("127.0.0.0/8"), netip.MustParsePrefix("169.254.0.0/16"),
	netip.MustParsePrefix("224.0.0.0/4"), netip.MustParsePrefix("255.255.255.255/32"),
	netip.MustParsePrefix("::/128"), netip.MustParsePrefix("::1/128"), netip.MustParsePrefix("fe80::/10"), netip.MustParsePrefix("ff00::/8"),
}

// Refusal says which endpoints are refused, since people who may write EndpointSlices may write any address
// into them. The zero value refuses none.
type Refusal struct {
	Networks []netip.Prefix
	Allowed  []netip.Prefix // also if Networks or Own have them
	// Own are the proxies' own addresses, such as those of their Dataplane APIs, each with its
	// description. Port 0 stands for all ports.
	Own map[netip.AddrPort]string
}

// Refused is an endpoint that is refused, and why.
type Refused struct {
	Endpoint snapshots.Endpoint
	Reason   string
}

// Split divides endpoints into usable and refused ones, both in their order. If none is refused, it returns the
// given endpoints.
func (r Refusal) Split(endpoints []snapshots.Endpoint) (used []snapshots.Endpoint, refused []Refused) {
	for _, e := range endpoints {
		if why := r.reason(e); why != "" {
			refused = append(refused, Refused{e, why})
		}
	}
	if len(refused) == 0 {
		return endpoints, nil
	}
	for _, e := range endpoints {
		if r.reason(e) == "" {
			used = append(used, e)
		}
	}
	return used, refused
}

// reason says why an endpoint is refused, "" for nothing.
func (r Refusal) reason(e snapshots.Endpoint) string {
	ip, err := netip.ParseAddr(e.Address)
	if err != nil {
		return "" // binding refuses it
	}
	if within(r.Allowed, ip) != (netip.Prefix{}) {
		return ""
	}
	for _, form := range append(standsFor(ip), ip) {
		if network := within(r.Networks, form); network != (netip.Prefix{}) {
			return fmt.Sprintf("it is in %s", network)
		}
		for _, port := range []uint16{uint16(e.Port), 0} { //nolint:gosec // ports are checked where they are read
			if what, own := r.Own[netip.AddrPortFrom(form, port)]; own {
				return "it is " + what
			}
		}
	}
	return ""
}

func within(networks []netip.Prefix, ip netip.Addr) netip.Prefix {
	if i := slices.IndexFunc(networks, func(p netip.Prefix) bool { return p.Contains(ip) }); i >= 0 {
		return networks[i]
	}
	return netip.Prefix{}
}

// The forms of IPv6 that embed an address of IPv4, and where it stands in the 16 bytes.
var embedding = []struct {
	network netip.Prefix
	at      int
	flipped bool
}{
	{netip.MustParsePrefix("::ffff:0:0/96"), 12, false},   // mapped, RFC 4291
	{netip.MustParsePrefix("::ffff:0:0:0/96"), 12, false}, // translated, RFC 2765
	{netip.MustParsePrefix("::/96"), 12, false},           // compatible, RFC 4291
	{netip.MustParsePrefix("64:ff9b::/96"), 12, false},    // NAT64, RFC 6052
	{netip.MustParsePrefix("64:ff9b:1::/48"), 12, false},  // NAT64 of a site, RFC 8215
	{netip.MustParsePrefix("2002::/16"), 2, false},        // 6to4, RFC 3056
	{netip.MustParsePrefix("2001::/32"), 12, true},        // Teredo, RFC 4380
}

// standsFor returns the IPv4 addresses that an IPv6 address embeds.
func standsFor(ip netip.Addr) []netip.Addr {
	if ip.Is4() {
		return nil
	}
	var out []netip.Addr
	for _, form := range embedding {
		if form.network.Contains(ip.WithZone("")) || ip.Is4In6() && form.network == embedding[0].network {
			bytes := ip.As16()
			four := [4]byte(bytes[form.at : form.at+4])
			if form.flipped {
				for i := range four {
					four[i] ^= 0xff
				}
			}
			out = append(out, netip.AddrFrom4(four))
		}
	}
	return out
}
