package pusher

import (
	"sync"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/hapsnap/hapsnap/internal/manifests"
	"github.com/hapsnap/hapsnap/snapshots"
)

// evidence is what else a directory says of Services without endpoints. It is only
// looked at when endpoints are missing.
type evidence struct {
	sliced map[snapshots.SecretName]bool // Services that have EndpointSlices, by namespace and name
	other  func() otherObjects
}

// otherObjects are those from which can be told that a Service has no endpoints.
type otherObjects struct {
	services  map[snapshots.SecretName]labels.Set // and whom they select
	speaksOf  map[string]bool                     // namespaces with Services
	workloads map[string][]workload               // by namespace
}

// workload is something that has pods.
type workload struct {
	labels labels.Set
	pods   int32
}

func newEvidence(set manifests.Set, sliced map[snapshots.SecretName]bool) evidence {
	return evidence{sliced, sync.OnceValue(func() otherObjects { return otherObjectsIn(set) })}
}

// of returns how the directory speaks of a Service port that has no endpoints in it.
func (v evidence) of(port snapshots.ServicePort) saying {
	name := snapshots.SecretName{Namespace: port.Namespace, Name: port.Service}
	if v.sliced[name] {
		return said
	}
	if v.other == nil {
		return unsaid
	}
	o := v.other()
	selector, there := o.services[name]
	switch {
	case there && o.scaledToZero(name.Namespace, selector):
		return said
	case !there && o.speaksOf[name.Namespace]:
		return unlisted
	}
	return unsaid
}

// scaledToZero reports whether the directory has workloads that a Service selects, and
// all of them are to have no pods. That it has none is no proof: pods may be made by
// objects of any kind.
func (o otherObjects) scaledToZero(namespace string, selector labels.Set) bool {
	selected := 0
	for _, w := range o.workloads[namespace] {
		if len(selector) == 0 || !labels.SelectorFromSet(selector).Matches(w.labels) {
			continue
		}
		if selected++; w.pods > 0 {
			return false
		}
	}
	return selected > 0
}

// otherObjectsIn reads them. Objects that cannot be decoded say nothing.
func otherObjectsIn(set manifests.Set) otherObjects {
	out := otherObjects{services: map[snapshots.SecretName]labels.Set{}, speaksOf: map[string]bool{}, workloads: map[string][]workload{}}
	for _, o := range set.Objects {
		switch o.GVK() {
		case manifests.GVK{APIVersion: "v1", Kind: "Service"}:
			var s corev1.Service
			_ = o.Decode(&s) // it is there, whatever is wrong with it
			out.services[snapshots.SecretName{Namespace: o.Namespace, Name: o.Name}] = s.Spec.Selector
			out.speaksOf[o.Namespace] = true
		case manifests.GVK{APIVersion: "v1", Kind: "Pod"}:
			out.workloads[o.Namespace] = append(out.workloads[o.Namespace], workload{o.Labels, 1})
		case manifests.GVK{APIVersion: "apps/v1", Kind: "Deployment"}, manifests.GVK{APIVersion: "apps/v1", Kind: "StatefulSet"},
			manifests.GVK{APIVersion: "apps/v1", Kind: "ReplicaSet"}, manifests.GVK{APIVersion: "apps/v1", Kind: "DaemonSet"}:
			var w struct {
				metav1.TypeMeta   `json:",inline"`
				metav1.ObjectMeta `json:"metadata"`
				Spec              struct {
					Replicas *int32                 `json:"replicas"`
					Template corev1.PodTemplateSpec `json:"template"`
				} `json:"spec"`
			}
			pods := int32(1)
			_ = o.Decode(&w) // what fits is enough
			if w.Spec.Replicas != nil {
				pods = *w.Spec.Replicas
			}
			out.workloads[o.Namespace] = append(out.workloads[o.Namespace], workload{w.Spec.Template.Labels, pods})
		}
	}
	return out
}
