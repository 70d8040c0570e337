package binding

import (
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strconv"
	"strings"

	"github.com/hapsnap/hapsnap/internal/haproxycfg"
	"github.com/hapsnap/hapsnap/snapshots"
	"github.com/hapsnap/hapsnap/snapshots/live"
)

// Refusals refuses endpoints that no EndpointSlice may name. A refused endpoint is not a loss, since the source still
// has it. A Service whose endpoints are all refused has no endpoints.
type Refusals struct {
	live.Refusal
	offered map[snapshots.ServicePort][]snapshots.Endpoint // the endpoints of the source, refused ones included
	refused RefusedEndpoints
	// counts says how many endpoints of each port are used. cut has the ports that have more endpoints than that.
	counts map[snapshots.ServicePort]int
	cut    map[snapshots.ServicePort]bool
}

// The largest number of endpoints of a Service port, and of a namespace. An EndpointSlice may name any number, and each
// endpoint becomes a line of haproxy.cfg and a server with health checks on every instance.
const (
	mostOfService   = 5_000
	mostOfNamespace = 25_000
)

// NewRefusals returns refusals of endpoints in some networks, except in the allowed ones.
func NewRefusals(networks, allowed []netip.Prefix) Refusals {
	r := Refusals{
		offered: map[snapshots.ServicePort][]snapshots.Endpoint{}, refused: RefusedEndpoints{},
		counts: map[snapshots.ServicePort]int{}, cut: map[snapshots.ServicePort]bool{},
	}
	r.Networks, r.Allowed = networks, allowed
	return r
}

// RefusedEndpoints are the refused endpoints, by Service port.
type RefusedEndpoints map[snapshots.ServicePort][]live.Refused

// recorded divides the recorded endpoints of a snapshot into used and refused ones. It does not look at the addresses
// of instances, which may change while the snapshot stays the same.
func (r *Refusals) recorded(endpoints map[snapshots.ServicePort][]snapshots.Endpoint) (used map[snapshots.ServicePort][]snapshots.Endpoint, refused RefusedEndpoints) {
	alone := NewRefusals(r.Networks, r.Allowed)
	return alone.filter(endpoints), alone.refused
}

// filterAll is filter for the endpoints of all Services.
func (r *Refusals) filterAll(endpoints map[snapshots.ServicePort][]snapshots.Endpoint) map[snapshots.ServicePort][]snapshots.Endpoint {
	clear(r.offered)
	clear(r.refused)
	clear(r.counts)
	clear(r.cut)
	return r.filter(endpoints)
}

// filter returns the endpoints to use, for ports that changed and for other ports of their namespaces that had too
// many.
func (r *Refusals) filter(changed map[snapshots.ServicePort][]snapshots.Endpoint) map[snapshots.ServicePort][]snapshots.Endpoint {
	out := make(map[snapshots.ServicePort][]snapshots.Endpoint, len(changed))
	namespaces := map[string]bool{}
	for port, endpoints := range changed {
		namespaces[port.Namespace] = true
		delete(r.offered, port)
		if out[port] = endpoints; len(endpoints) > 0 {
			r.offered[port] = endpoints
		}
	}
	for port := range r.cut {
		if namespaces[port.Namespace] {
			out[port] = r.offered[port]
		}
	}
	for port := range out {
		delete(r.refused, port)
		delete(r.counts, port)
		delete(r.cut, port)
	}
	used := map[string]int{}
	for port, n := range r.counts {
		used[port.Namespace] += n
	}
	for _, port := range slices.SortedFunc(maps.Keys(out), snapshots.ServicePort.Compare) {
		taken, refused := r.Split(out[port])
		if most := min(mostOfService, max(0, mostOfNamespace-used[port.Namespace])); len(taken) > most {
			for _, e := range taken[most:] {
				refused = append(refused, live.Refused{Endpoint: e, Reason: fmt.Sprintf(
					"a Service may have %d endpoints, and those of a namespace %d together", mostOfService, mostOfNamespace)})
			}
			taken, r.cut[port] = taken[:most:most], true
		}
		if out[port] = taken; len(taken) > 0 {
			r.counts[port] = len(taken)
			used[port.Namespace] += len(taken)
		}
		if len(refused) > 0 {
			r.refused[port] = refused
		}
	}
	return out
}

// setOwn takes the addresses of the instances. It returns the endpoints to use for the ports that this concerns.
func (r *Refusals) setOwn(own map[netip.AddrPort]string) map[snapshots.ServicePort][]snapshots.Endpoint {
	if maps.Equal(own, r.Own) {
		return nil
	}
	before := r.Refusal
	r.Own = own
	differ := map[snapshots.ServicePort][]snapshots.Endpoint{}
	for port, endpoints := range r.offered {
		was, _ := before.Split(endpoints)
		if now, _ := r.Split(endpoints); !slices.Equal(was, now) {
			differ[port] = endpoints
		}
	}
	return r.filter(differ)
}

// listener is an address and a port at which HAProxy listens. The zero address stands for all addresses.
type listener struct {
	address netip.Addr
	port    uint16
}

// mostListeners is the largest number of listeners of a configuration that count.
const mostListeners = 256

// listenersOf returns the addresses at which HAProxy listens with this configuration, each once: those of its
// frontends, of its runtime API and of its peers. It leaves out addresses with variables. Ranges of ports come last, so
// that a large one takes no room from others.
func listenersOf(config []byte) []listener {
	var out, ranges []listener
	for line := range haproxycfg.Lines(config) {
		var at int // the word with the addresses
		switch haproxycfg.FirstWord(line.Text) {
		case "bind":
			at = 1
		case "stats", "peer":
			at = 2
		default:
			continue
		}
		words := line.Texts()
		if len(words) <= at || words[0] == "stats" && words[1] != "socket" {
			continue
		}
		for _, address := range strings.Split(words[at], ",") {
			switch found := parseListeners(address); {
			case len(found) > 1:
				ranges = append(ranges, found...)
			case len(found) == 1 && len(out) < mostListeners && !slices.Contains(out, found[0]):
				out = append(out, found[0])
			}
		}
	}
	for _, l := range ranges {
		if len(out) < mostListeners && !slices.Contains(out, l) {
			out = append(out, l)
		}
	}
	return out
}

// parseListeners reads an address of the keyword bind, such as ":80", "*:80", "10.0.0.1:80",
// "ipv6@[::]:80" or "quic4@:443", or a range of ports, such as ":9100-9199".
func parseListeners(text string) []listener {
	if _, rest, ok := strings.Cut(text, "@"); ok {
		text = rest
	}
	i := strings.LastIndexByte(text, ':')
	if i < 0 {
		return nil
	}
	low, high, isRange := strings.Cut(text[i+1:], "-")
	if !isRange {
		high = low
	}
	first, err := strconv.ParseUint(low, 10, 16)
	if err != nil || first == 0 {
		return nil
	}
	last, err := strconv.ParseUint(high, 10, 16)
	if err != nil {
		return nil
	}
	host, address := strings.Trim(text[:i], "[]"), netip.Addr{}
	if host != "" && host != "*" {
		if address, err = netip.ParseAddr(host); err != nil {
			return nil
		}
	}
	if address.IsUnspecified() {
		address = netip.Addr{}
	}
	var out []listener
	for port := first; port <= last && len(out) < mostListeners; port++ {
		out = append(out, listener{address.Unmap(), uint16(port)}) //nolint:gosec // it was read as 16 bits
	}
	return out
}
