package pusher

import (
	"fmt"
	"maps"
	"net/netip"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/hapsnap/hapsnap/pusher/cluster"
	"github.com/hapsnap/hapsnap/snapshots"
	"github.com/hapsnap/hapsnap/snapshots/live"
)

// refusals keeps from the instances what EndpointSlices of a cluster may not name. What is
// refused was said by the source, and is no loss: a Service of which all is refused has no
// endpoints.
type refusals struct {
	live.Refusal
	offered map[snapshots.ServicePort][]snapshots.Endpoint // as the cluster has them
	refused map[snapshots.ServicePort][]live.Refused
}

func newRefusals(o Options) refusals {
	return refusals{
		Refusal: live.Refusal{Networks: o.RefuseEndpoints, Allowed: o.AllowEndpoints},
		offered: map[snapshots.ServicePort][]snapshots.Endpoint{}, refused: map[snapshots.ServicePort][]live.Refused{},
	}
}

// filter returns what is used of endpoints that changed.
func (r *refusals) filter(changed map[snapshots.ServicePort][]snapshots.Endpoint) map[snapshots.ServicePort][]snapshots.Endpoint {
	out := make(map[snapshots.ServicePort][]snapshots.Endpoint, len(changed))
	for port, endpoints := range changed {
		delete(r.offered, port)
		delete(r.refused, port)
		if len(endpoints) > 0 {
			r.offered[port] = endpoints
		}
		used, refused := r.Split(endpoints)
		if out[port] = used; len(refused) > 0 {
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

// ownAddresses returns where the Dataplane APIs of the instances are, as far as they are
// known by address.
func (e *engine) ownAddresses() map[netip.AddrPort]string {
	own := map[netip.AddrPort]string{}
	for name, i := range e.instances {
		u, err := url.Parse(i.URL)
		if err != nil {
			continue
		}
		host := u.Host
		if u.Port() == "" {
			host = u.Host + map[string]string{"http": ":80", "https": ":443"}[u.Scheme]
		}
		if at, err := netip.ParseAddrPort(host); err == nil {
			own[at] = "the Dataplane API of " + name
		}
	}
	return own
}

// refuseOwn refuses the addresses of instances that came, and no longer those of instances
// that went.
func (e *engine) refuseOwn(now time.Time) {
	if e.bindings.from != fromCluster || len(e.RefuseEndpoints) == 0 {
		return
	}
	if changed := e.refusals.setOwn(e.ownAddresses()); len(changed) > 0 {
		e.hearEndpoints(e.reportsOfChange(cluster.Change{Endpoints: changed}), now)
	}
	e.trouble("endpoints", e.refusals.trouble(), now)
}

// trouble tells which endpoints are refused, nil for none.
func (r *refusals) trouble() error {
	if len(r.refused) == 0 {
		return nil
	}
	n := 0
	var first []string
	for _, port := range slices.SortedFunc(maps.Keys(r.refused), snapshots.ServicePort.Compare) {
		for _, refused := range r.refused[port] {
			n++
			if len(first) < 4 {
				e := refused.Endpoint
				first = append(first, fmt.Sprintf("%s of %s: %s", netip.AddrPortFrom(netip.MustParseAddr(e.Address), uint16(e.Port)), port, refused.Reason)) //nolint:gosec // ports are checked where they are read
			}
		}
	}
	if more := n - len(first); more > 0 {
		first = append(first, fmt.Sprintf("and %d more", more))
	}
	return fmt.Errorf("EndpointSlices name addresses that are refused, and nothing is sent there: %s", strings.Join(first, "; "))
}
