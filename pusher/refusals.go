package pusher

import (
	"fmt"
	"maps"
	"net/netip"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/hapsnap/hapsnap/internal/events"
	"github.com/hapsnap/hapsnap/internal/haproxycfg"
	"github.com/hapsnap/hapsnap/pusher/cluster"
	"github.com/hapsnap/hapsnap/snapshots"
	"github.com/hapsnap/hapsnap/snapshots/live"
)

// refusals keeps from the instances what EndpointSlices may not name. What is
// refused was said by the source, and is no loss: a Service of which all is refused has no
// endpoints.
type refusals struct {
	live.Refusal
	offered map[snapshots.ServicePort][]snapshots.Endpoint // as the source has them
	refused refusedEndpoints
	// counts are how many endpoints are used of each port, cut those that have more than that.
	counts map[snapshots.ServicePort]int
	cut    map[snapshots.ServicePort]bool
}

// The most endpoints of a port of a Service, and of all of a namespace. Whoever writes
// EndpointSlices writes any number, and each is a line of haproxy.cfg and a server with health
// checks, on every instance.
const (
	mostOfService   = 5_000
	mostOfNamespace = 25_000
)

func newRefusals(o Options) refusals {
	r := refusals{
		offered: map[snapshots.ServicePort][]snapshots.Endpoint{}, refused: refusedEndpoints{},
		counts: map[snapshots.ServicePort]int{}, cut: map[snapshots.ServicePort]bool{},
	}
	r.Allowed = o.AllowEndpoints
	if o.endpointsFrom() == fromCluster || o.RefuseInManifests {
		r.Networks = o.RefuseEndpoints
	}
	return r
}

// refusedEndpoints are those that are refused, by the port of the Service that they are of.
type refusedEndpoints map[snapshots.ServicePort][]live.Refused

// recorded divides endpoints that are recorded in a snapshot. Where instances are is not looked
// at there: it may change while the snapshot does not.
func (r *refusals) recorded(endpoints map[snapshots.ServicePort][]snapshots.Endpoint) (used map[snapshots.ServicePort][]snapshots.Endpoint, refused refusedEndpoints) {
	alone := newRefusals(Options{AllowEndpoints: r.Allowed})
	alone.Networks = r.Networks
	return alone.filter(endpoints), alone.refused
}

// filterAll is filter for the endpoints of all Services.
func (r *refusals) filterAll(endpoints map[snapshots.ServicePort][]snapshots.Endpoint) map[snapshots.ServicePort][]snapshots.Endpoint {
	clear(r.offered)
	clear(r.refused)
	clear(r.counts)
	clear(r.cut)
	return r.filter(endpoints)
}

// filter returns what is used of endpoints that changed, and of others of their namespaces that
// were too many.
func (r *refusals) filter(changed map[snapshots.ServicePort][]snapshots.Endpoint) map[snapshots.ServicePort][]snapshots.Endpoint {
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

// setOwn takes the addresses that are the instances' own, and returns what is used of the
// endpoints of which that makes a difference.
func (r *refusals) setOwn(own map[netip.AddrPort]string) map[snapshots.ServicePort][]snapshots.Endpoint {
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

// ownAddresses returns where the Dataplane APIs of the instances are, and where HAProxy itself
// listens on their addresses, for requests or with its statistics. What else runs on the same
// addresses is no concern: a pod in the network of the node may run beside HAProxy.
func (e *engine) ownAddresses() map[netip.AddrPort]string {
	own := map[netip.AddrPort]string{}
	for name, i := range e.instances {
		at, known := i.address()
		if !known {
			continue
		}
		for _, p := range e.bindings.prepared {
			for _, l := range p.listeners {
				if l.address.IsValid() {
					own[netip.AddrPortFrom(l.address, l.port)] = "HAProxy's own"
				} else {
					own[netip.AddrPortFrom(at.Addr(), l.port)] = "HAProxy's own, on " + name
				}
			}
		}
		own[at] = "the Dataplane API of " + name
	}
	return own
}

// address returns where an instance's Dataplane API is: what its URL says, or, if that is a name,
// where the connections to it got to.
func (i *instance) address() (netip.AddrPort, bool) {
	u, err := url.Parse(i.URL)
	if err != nil {
		return netip.AddrPort{}, false
	}
	host := u.Host
	if u.Port() == "" {
		host = u.Host + map[string]string{"http": ":80", "https": ":443"}[u.Scheme]
	}
	at, err := netip.ParseAddrPort(host)
	if err != nil && i.client != nil {
		at = i.client.Peer()
	}
	return netip.AddrPortFrom(at.Addr().Unmap().WithZone(""), at.Port()), at.IsValid()
}

// refuseOwn refuses the addresses of instances that came, and no longer those of instances
// that went.
func (e *engine) refuseOwn(now time.Time) {
	if len(e.RefuseEndpoints) > 0 {
		if changed := e.refusals.setOwn(e.ownAddresses()); len(changed) > 0 {
			e.hearEndpoints(e.reportsOfChange(cluster.Change{Endpoints: changed}), now)
		}
	}
	refused := e.refusedEndpoints()
	e.metrics.refusedEndpoints.Set(float64(refused.count()))
	e.trouble("endpoints", refused.trouble(), now)
}

// refusedEndpoints returns all that are refused, of live data and of snapshots in use.
func (e *engine) refusedEndpoints() refusedEndpoints {
	all := maps.Clone(e.refusals.refused)
	for _, id := range slices.SortedFunc(maps.Keys(e.bindings.prepared), snapshots.ID.Compare) {
		maps.Copy(all, e.bindings.prepared[id].refused)
	}
	return all
}

// count returns how many endpoints are refused.
func (r refusedEndpoints) count() int {
	n := 0
	for _, refused := range r {
		n += len(refused)
	}
	return n
}

// mostRefusalsSaid bounds the Events on Services of which endpoints are refused, and
// mostAddressesSaid the addresses in one.
const mostRefusalsSaid, mostAddressesSaid = 100, 20

// events says on each Service which of its endpoints are refused. It does not say what an
// address is: whoever may write EndpointSlices could find out by that where proxies listen.
func (r refusedEndpoints) events() []events.Event {
	var out []events.Event
	for _, port := range slices.SortedFunc(maps.Keys(r), snapshots.ServicePort.Compare) {
		if len(out) == mostRefusalsSaid {
			break
		}
		var named []string
		for _, refused := range r[port] {
			if len(named) == mostAddressesSaid {
				named = append(named, fmt.Sprintf("and %d more", len(r[port])-mostAddressesSaid))
				break
			}
			named = append(named, addressOf(refused.Endpoint))
		}
		out = append(out, events.Event{
			Regarding: corev1.ObjectReference{APIVersion: "v1", Kind: "Service", Namespace: port.Namespace, Name: port.Service},
			Action:    watching, Type: corev1.EventTypeWarning, Reason: "EndpointsRefused",
			Note: events.Note("nothing is sent to these addresses of its EndpointSlices, which no Service may have, or which are too many: " + strings.Join(named, ", ")),
		})
	}
	return out
}

func addressOf(e snapshots.Endpoint) string {
	return netip.AddrPortFrom(netip.MustParseAddr(e.Address), uint16(e.Port)).String() //nolint:gosec // ports are checked where they are read
}

// trouble tells which endpoints are refused, nil for none.
func (r refusedEndpoints) trouble() error {
	if len(r) == 0 {
		return nil
	}
	var first []string
	for _, port := range slices.SortedFunc(maps.Keys(r), snapshots.ServicePort.Compare) {
		for _, refused := range r[port] {
			if len(first) < 4 {
				first = append(first, fmt.Sprintf("%s of %s: %s", addressOf(refused.Endpoint), port, refused.Reason))
			}
		}
	}
	if more := r.count() - len(first); more > 0 {
		first = append(first, fmt.Sprintf("and %d more", more))
	}
	return fmt.Errorf("EndpointSlices name addresses that are refused, and nothing is sent there: %s", strings.Join(first, "; "))
}

// listener is an address and a port that HAProxy listens at. The zero address is all addresses.
type listener struct {
	address netip.Addr
	port    uint16
}

// mostListeners bounds how many listeners of a configuration count.
const mostListeners = 256

// listenersOf returns where a configuration has HAProxy listen, each once, as far as it says so
// without variables.
func listenersOf(config []byte) []listener {
	var out []listener
	for line := range haproxycfg.Lines(config) {
		if haproxycfg.FirstWord(line.Text) != "bind" || len(out) >= mostListeners {
			continue
		}
		words := line.Texts()
		if len(words) < 2 {
			continue
		}
		for _, at := range strings.Split(words[1], ",") {
			if l, ok := parseListener(at); ok && !slices.Contains(out, l) {
				out = append(out, l)
			}
		}
	}
	return out
}

// parseListener reads an address of the keyword bind, such as ":80", "*:80", "10.0.0.1:80",
// "ipv6@[::]:80" or "quic4@:443".
func parseListener(text string) (listener, bool) {
	if _, rest, ok := strings.Cut(text, "@"); ok {
		text = rest
	}
	i := strings.LastIndexByte(text, ':')
	if i < 0 {
		return listener{}, false
	}
	port, err := strconv.ParseUint(text[i+1:], 10, 16)
	if err != nil || port == 0 {
		return listener{}, false
	}
	host := strings.Trim(text[:i], "[]")
	if host == "" || host == "*" {
		return listener{port: uint16(port)}, true
	}
	address, err := netip.ParseAddr(host)
	if err != nil {
		return listener{}, false
	}
	if address.IsUnspecified() {
		address = netip.Addr{}
	}
	return listener{address.Unmap(), uint16(port)}, true
}
