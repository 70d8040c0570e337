package cluster

import (
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

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
		return trimSlice(o), nil
	case *corev1.Secret:
		return &corev1.Secret{ObjectMeta: trimMeta(o.ObjectMeta), Type: o.Type, Data: o.Data}, nil
	}
	return o, nil
}

func trimMeta(m metav1.ObjectMeta) metav1.ObjectMeta {
	return metav1.ObjectMeta{Namespace: m.Namespace, Name: m.Name, UID: m.UID, ResourceVersion: m.ResourceVersion}
}

func trimSlice(s *discoveryv1.EndpointSlice) *discoveryv1.EndpointSlice {
	out := &discoveryv1.EndpointSlice{
		ObjectMeta: trimMeta(s.ObjectMeta), AddressType: s.AddressType,
		Ports: s.Ports, Endpoints: make([]discoveryv1.Endpoint, len(s.Endpoints)),
	}
	out.Labels = only(s.Labels, discoveryv1.LabelServiceName)
	out.Annotations = only(s.Annotations, triggerAnnotation)
	for i, e := range s.Endpoints {
		out.Endpoints[i] = discoveryv1.Endpoint{Addresses: e.Addresses[:min(len(e.Addresses), 1):1], Conditions: e.Conditions}
	}
	return out
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
