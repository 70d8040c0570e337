package inputs

import (
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// OfOneAge returns the inputs without the creation times of what files hold. Who writes
// a manifest can write any time there; an API server sets it itself.
func (in Inputs) OfOneAge() Inputs {
	in.Ingresses = ageless(in.Ingresses, func(i *networkingv1.Ingress) *metav1.Time { return &i.CreationTimestamp })
	in.Broken = ageless(in.Broken, func(i *networkingv1.Ingress) *metav1.Time { return &i.CreationTimestamp })
	in.Services = ageless(in.Services, func(s *corev1.Service) *metav1.Time { return &s.CreationTimestamp })
	return in
}

// ageless returns objects without creation times, as far as they are from files. Values
// are shared, so that those that change are copied.
func ageless[T any](objects []Object[T], created func(*T) *metav1.Time) []Object[T] {
	out := objects
	for i, o := range objects {
		if o.At == nil || created(o.Value).IsZero() {
			continue
		}
		if &out[0] == &objects[0] {
			out = append([]Object[T]{}, objects...)
		}
		value := *o.Value
		*created(&value) = metav1.Time{}
		out[i].Value = &value
	}
	return out
}
