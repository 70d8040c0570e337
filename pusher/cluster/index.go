package cluster

import (
	"maps"
	"slices"
	"time"

	discoveryv1 "k8s.io/api/discovery/v1"

	"github.com/hapsnap/hapsnap/snapshots"
	"github.com/hapsnap/hapsnap/snapshots/live"
)

// service names a Service.
type service struct{ namespace, name string }

// index is the EndpointSlices by Service, with the endpoints that were made of
// them. A change costs what its Service has.
type index struct {
	slices    map[service]map[string]*discoveryv1.EndpointSlice // by namespace/name
	services  map[string]service                                // of each slice
	endpoints map[service]map[snapshots.ServicePort][]snapshots.Endpoint
	// dirty are the Services of which slices changed since take, and when they did.
	dirty map[service][]time.Time
	// unsaid are the Services without a slice of which the last was missing in a list:
	// nobody said that it was deleted.
	unsaid map[service]bool
}

func newIndex() *index {
	return &index{
		slices: map[service]map[string]*discoveryv1.EndpointSlice{}, services: map[string]service{},
		endpoints: map[service]map[snapshots.ServicePort][]snapshots.Endpoint{}, dirty: map[service][]time.Time{}, unsaid: map[service]bool{},
	}
}

// put takes in a slice that is new or changed.
func (x *index) put(key string, s *discoveryv1.EndpointSlice, now time.Time) {
	of := service{s.Namespace, s.Labels[discoveryv1.LabelServiceName]}
	var old *discoveryv1.EndpointSlice
	if was, known := x.services[key]; known {
		old = x.slices[was][key]
		if was != of {
			x.remove(key, now, false)
		}
	}
	delete(x.unsaid, of)
	if x.slices[of] == nil {
		x.slices[of] = map[string]*discoveryv1.EndpointSlice{}
	}
	x.slices[of][key], x.services[key] = s, of
	x.touch(of, changedAt(old, s, now))
}

// remove forgets a slice that is gone: deleted, or missing in a list.
func (x *index) remove(key string, now time.Time, missing bool) {
	of, known := x.services[key]
	if !known {
		return
	}
	delete(x.services, key)
	if delete(x.slices[of], key); len(x.slices[of]) == 0 {
		delete(x.slices, of)
		if delete(x.unsaid, of); missing {
			x.unsaid[of] = true
		}
	}
	x.touch(of, now)
}

// touch notes that a Service has other slices, since a time unless that is zero.
func (x *index) touch(of service, at time.Time) {
	times := x.dirty[of]
	if !at.IsZero() && len(times) < maxTimes {
		times = append(times, at)
	}
	x.dirty[of] = times
}

// maxTimes bounds how many changes of one Service are told apart before somebody
// asks for them.
const maxTimes = 16

// take puts into a change the endpoints of each Service port that has others than when
// take was called last, nil for one that has none any more, and when they changed.
func (x *index) take(out *Change) {
	changed, since := map[snapshots.ServicePort][]snapshots.Endpoint{}, []time.Time(nil)
	out.Seen, out.Unsaid = map[snapshots.SecretName]bool{}, map[snapshots.ServicePort]bool{}
	for of, times := range x.dirty {
		if len(x.slices[of]) > 0 {
			out.Seen[snapshots.SecretName{Namespace: of.namespace, Name: of.name}] = true
		}
		old, now := x.endpoints[of], live.Endpoints(slicesOf(x.slices[of]))
		differ := difference(old, now)
		if len(differ) == 0 {
			continue
		}
		maps.Copy(changed, differ)
		for port := range differ {
			if x.unsaid[of] {
				out.Unsaid[port] = true
			}
		}
		since = append(since, times...)
		if x.endpoints[of] = now; len(now) == 0 {
			delete(x.endpoints, of)
		}
	}
	clear(x.dirty)
	slices.SortFunc(since, time.Time.Compare)
	out.Endpoints, out.Since = changed, since
}

func slicesOf(of map[string]*discoveryv1.EndpointSlice) []discoveryv1.EndpointSlice {
	out := make([]discoveryv1.EndpointSlice, 0, len(of))
	for _, s := range of {
		out = append(out, *s)
	}
	return out
}

// difference returns what the ports have now that had something else before.
func difference(old, now map[snapshots.ServicePort][]snapshots.Endpoint) map[snapshots.ServicePort][]snapshots.Endpoint {
	out := map[snapshots.ServicePort][]snapshots.Endpoint{}
	for port, endpoints := range now {
		if before, known := old[port]; !known || !slices.Equal(before, endpoints) {
			out[port] = endpoints
		}
	}
	for port := range old {
		if _, still := now[port]; !still {
			out[port] = nil
		}
	}
	return out
}
