package inputs

import (
	"cmp"
	"slices"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/hapsnap/hapsnap/compiler/diag"
	"github.com/hapsnap/hapsnap/internal/manifests"
	"github.com/hapsnap/hapsnap/snapshots"
)

// Object is one object of a known type. Value is shared and must not be
// changed. At finds the position of a field, as names and indices lead to it;
// it is nil for objects that do not come from files.
type Object[T any] struct {
	Ref   diag.Object
	Value *T
	At    func(path ...any) diag.Position
}

// Position returns the place of a field, or of its nearest parent; the name of
// the field if the object does not come from a file.
func (o Object[T]) Position(path ...any) diag.Position {
	if o.At == nil {
		return diag.Position{Field: manifests.FieldPath(path)}
	}
	return o.At(path...)
}

// Inputs is what one compile is made from, in any order; no two objects of a
// list have the same name.
type Inputs struct {
	Ingresses []Object[networkingv1.Ingress]
	// Broken are Ingresses that break their schema. They hold what could be read,
	// and are here to be kept closed if they protect something, not to be served.
	Broken         []Object[networkingv1.Ingress]
	Classes        []Object[networkingv1.IngressClass]
	Services       []Object[corev1.Service]
	Secrets        []Object[corev1.Secret]
	ConfigMaps     []Object[corev1.ConfigMap]
	EndpointSlices []Object[discoveryv1.EndpointSlice]
	// Namespaces are here for their labels.
	Namespaces []Object[corev1.Namespace]
	// Others are the objects of the kinds that the configuration names, with their
	// content: also those of kinds that are above too.
	Others []Object[unstructured.Unstructured]
}

// Values returns the plain values of objects.
func Values[T any](objects []Object[T]) []T {
	out := make([]T, len(objects))
	for i, o := range objects {
		out[i] = *o.Value
	}
	return out
}

// Without returns the inputs without the given objects.
func (in Inputs) Without(refs ...diag.Object) Inputs {
	if len(refs) == 0 {
		return in
	}
	out := make(map[diag.Object]bool, len(refs))
	for _, ref := range refs {
		out[ref] = true
	}
	return Inputs{
		Ingresses:      without(in.Ingresses, out),
		Broken:         without(in.Broken, out),
		Classes:        without(in.Classes, out),
		Services:       without(in.Services, out),
		Secrets:        without(in.Secrets, out),
		ConfigMaps:     without(in.ConfigMaps, out),
		EndpointSlices: without(in.EndpointSlices, out),
		Namespaces:     without(in.Namespaces, out),
		Others:         without(in.Others, out),
	}
}

func without[T any](objects []Object[T], out map[diag.Object]bool) []Object[T] {
	return slices.DeleteFunc(slices.Clone(objects), func(o Object[T]) bool { return out[o.Ref] })
}

// Provenance lists the objects as a snapshot's manifest records them, sorted.
// EndpointSlices are left out, unless templates read them: they are live data. So
// are Namespaces, which decide what is read and are not in it.
func (in Inputs) Provenance() []snapshots.Input {
	var out []snapshots.Input
	out = record(out, networkingv1.SchemeGroupVersion.String(), in.Ingresses)
	out = record(out, networkingv1.SchemeGroupVersion.String(), in.Classes)
	out = record(out, corev1.SchemeGroupVersion.String(), in.Services)
	out = record(out, corev1.SchemeGroupVersion.String(), in.Secrets)
	out = record(out, corev1.SchemeGroupVersion.String(), in.ConfigMaps)
	for _, o := range in.Others {
		out = record(out, o.Value.GetAPIVersion(), []Object[unstructured.Unstructured]{o})
	}
	slices.SortFunc(out, func(a, b snapshots.Input) int {
		return cmp.Or(cmp.Compare(a.APIVersion, b.APIVersion), cmp.Compare(a.Kind, b.Kind),
			cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Name, b.Name))
	})
	return slices.CompactFunc(out, func(a, b snapshots.Input) bool {
		return a.APIVersion == b.APIVersion && a.Kind == b.Kind && a.Namespace == b.Namespace && a.Name == b.Name
	})
}

func record[T any](out []snapshots.Input, apiVersion string, objects []Object[T]) []snapshots.Input {
	for _, o := range objects {
		input := snapshots.Input{APIVersion: apiVersion, Kind: o.Ref.Kind, Namespace: o.Ref.Namespace, Name: o.Ref.Name}
		if m, ok := any(o.Value).(metav1.Object); ok {
			input.UID, input.ResourceVersion = string(m.GetUID()), m.GetResourceVersion()
		}
		out = append(out, input)
	}
	return out
}
