package cluster

import (
	"maps"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

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
	out.Seen, out.Unsaid = map[types.NamespacedName]bool{}, map[snapshots.ServicePort]bool{}
	for of, times := range x.dirty {
		if len(x.slices[of]) > 0 {
			out.Seen[types.NamespacedName{Namespace: of.namespace, Name: of.name}] = true
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

// triggerAnnotation is when the pod or Service changed for the sake of which an
// EndpointSlice was written, as the cluster's controller says.
const triggerAnnotation = "endpoints.kubernetes.io/last-change-trigger-time"

// maxTriggerAge is how old the time of a change may be to be taken for that of the
// one that is just seen.
const maxTriggerAge = 10 * time.Minute

// trim returns an object with nothing but what is made of it. The API server's
// version stays, for the reflector goes on from it.
func trim(o any) (any, error) {
	switch o := o.(type) {
	case *discoveryv1.EndpointSlice:
		out := &discoveryv1.EndpointSlice{
			ObjectMeta: trimMeta(o.ObjectMeta), AddressType: o.AddressType,
			Ports: o.Ports, Endpoints: make([]discoveryv1.Endpoint, len(o.Endpoints)),
		}
		out.Labels = only(o.Labels, discoveryv1.LabelServiceName)
		out.Annotations = only(o.Annotations, triggerAnnotation)
		for i, e := range o.Endpoints {
			out.Endpoints[i] = discoveryv1.Endpoint{Addresses: e.Addresses[:min(len(e.Addresses), 1):1], Conditions: e.Conditions}
		}
		return out, nil
	case *corev1.Secret:
		return &corev1.Secret{ObjectMeta: trimMeta(o.ObjectMeta), Type: o.Type, Data: o.Data}, nil
	}
	return o, nil
}

func trimMeta(m metav1.ObjectMeta) metav1.ObjectMeta {
	return metav1.ObjectMeta{Namespace: m.Namespace, Name: m.Name, UID: m.UID, ResourceVersion: m.ResourceVersion}
}

// only returns the entry of one key, if there is one.
func only(m map[string]string, key string) map[string]string {
	if value, ok := m[key]; ok {
		return map[string]string{key: value}
	}
	return nil
}

// changedAt returns when a slice changed: when the cluster says that the cause
// happened, if it says so of this change, else when it is seen; zero stays zero.
func changedAt(old, s *discoveryv1.EndpointSlice, now time.Time) time.Time {
	text := s.Annotations[triggerAnnotation]
	if now.IsZero() || text == "" || (old != nil && old.Annotations[triggerAnnotation] == text) {
		return now
	}
	at, err := time.Parse(time.RFC3339Nano, text)
	if err != nil || at.After(now) || now.Sub(at) > maxTriggerAge {
		return now
	}
	return at
}
