package cluster

import (
	"fmt"
	"reflect"
	"strings"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/hapsnap/hapsnap/compiler/config/kinds"
	"github.com/hapsnap/hapsnap/compiler/inputs"
	"github.com/hapsnap/hapsnap/internal/kubewatch"
)

// converter makes what is kept of the objects of a query.
type converter struct {
	trim  func(content map[string]any)
	typed func() any // a new value of the kind's type; nil keeps the content
	// strict has fields that the type does not have noted.
	strict bool
	kind   schema.GroupVersionKind
}

func converterFor(q kubewatch.Query) converter {
	c := converter{
		trim: inputs.Trimmer(kinds.Kind{APIVersion: q.APIVersion, Kind: q.Kind, Drop: strings.Fields(q.Drop)}),
		kind: schema.FromAPIVersionAndKind(q.APIVersion, q.Kind),
	}
	if q.Content {
		return c
	}
	if kind, is := inputs.GatewayKindOf(q.Kind); is && q.APIVersion == inputs.GatewayVersion {
		c.typed, c.strict = func() any { return kind.New() }, true
		return c
	}
	if q.APIVersion == inputs.DefinitionVersion && q.Kind == inputs.DefinitionKind {
		c.typed = func() any { return new(inputs.Definition) }
		return c
	}
	switch q.Kind {
	case "Ingress":
		c.typed = func() any { return new(networkingv1.Ingress) }
	case "IngressClass":
		c.typed = func() any { return new(networkingv1.IngressClass) }
	case "Service":
		c.typed = func() any { return new(corev1.Service) }
	case "EndpointSlice":
		c.typed = func() any { return new(discoveryv1.EndpointSlice) }
	case "Secret":
		c.typed = func() any { return new(corev1.Secret) }
	case "ConfigMap":
		c.typed = func() any { return new(corev1.ConfigMap) }
	case "Namespace":
		c.typed = func() any { return new(corev1.Namespace) }
	}
	return c
}

// object returns what is kept of an object that the API server sent. It may get that again.
func (c converter) object(o any) (any, error) {
	u, raw := o.(*unstructured.Unstructured)
	if !raw {
		if object, named := o.(metav1.Object); named {
			inputs.Trim(object)
		}
		if object, is := o.(runtime.Object); is { // values of a type come without it
			object.GetObjectKind().SetGroupVersionKind(c.kind)
		}
		strip(o)
		return o, nil
	}
	c.trim(u.Object)
	if c.typed == nil {
		return u, nil
	}
	value := c.typed()
	err := runtime.DefaultUnstructuredConverter.FromUnstructuredWithValidation(u.Object, value, c.strict)
	unknown, more := runtime.AsStrictDecodingError(err)
	if err != nil && !more {
		return nil, fmt.Errorf("convert %s %s/%s: %w", u.GetKind(), u.GetNamespace(), u.GetName(), err)
	}
	if object, is := value.(metav1.Object); is && c.strict {
		field := ""
		if more {
			field = firstUnknown(unknown.Errors())
		}
		inputs.NoteUnknown(object, field)
	}
	strip(value)
	return value, nil
}

// strip removes the fields that no compile uses. The addresses of load balancers stay, since the status of Ingresses gets
// those of a Service. The status of objects of the Gateway API stays, since the compiler compares it with what it has
// to write. The selector and the owner of a Service that was made for a Gateway stay too.
func strip(value any) {
	switch o := value.(type) {
	case *networkingv1.Ingress:
		o.OwnerReferences, o.Finalizers = nil, nil
	case *corev1.Service:
		o.Finalizers, o.Status.Conditions = nil, nil
		if _, made := o.Annotations[inputs.ControllerAnnotation]; !made {
			o.OwnerReferences, o.Spec.Selector = nil, nil
		}
	case *corev1.ConfigMap:
		o.OwnerReferences, o.BinaryData = nil, nil
	case *corev1.Secret:
		o.OwnerReferences = nil
	case *corev1.Namespace:
		o.Spec, o.Status, o.Annotations = corev1.NamespaceSpec{}, corev1.NamespaceStatus{}, nil
	case *discoveryv1.EndpointSlice:
		o.OwnerReferences = nil
	case *inputs.Definition:
		o.Strip()
	}
}

// firstUnknown returns a field of the spec that only a later version of the API has, or "". An object with such a field is
// not served as if the field were missing.
func firstUnknown(unknown []error) string {
	for _, err := range unknown {
		if field, is := strings.CutPrefix(err.Error(), "unknown field \"spec."); is {
			return "spec." + strings.TrimSuffix(field, "\"")
		}
	}
	return ""
}

// equal reports whether the same is made of two versions of an object. A version has
// another number whatever changed.
func equal(a, b metav1.Object) bool {
	if u, ok := a.(*unstructured.Unstructured); ok {
		v, ok := b.(*unstructured.Unstructured)
		return ok && reflect.DeepEqual(unversioned(u), unversioned(v))
	}
	return reflect.DeepEqual(timeless(a), timeless(b))
}

// unversioned returns the content of an object without its version.
func unversioned(u *unstructured.Unstructured) map[string]any {
	out := make(map[string]any, len(u.Object))
	for key, value := range u.Object {
		out[key] = value
	}
	if metadata, ok := out["metadata"].(map[string]any); ok {
		rest := make(map[string]any, len(metadata))
		for key, value := range metadata {
			if key != "resourceVersion" && key != "generation" {
				rest[key] = value
			}
		}
		out["metadata"] = rest
	}
	return out
}

// timeless returns a shallow copy of an object without its version, and without the
// status of an Ingress: that is for us to write, and no compile looks at it.
func timeless(o metav1.Object) any {
	out := reflect.New(reflect.TypeOf(o).Elem())
	out.Elem().Set(reflect.ValueOf(o).Elem())
	object, _ := out.Interface().(metav1.Object)
	object.SetResourceVersion("")
	if !inputs.WithoutStatus(object) { // the status of those names the generation that was compiled
		object.SetGeneration(0)
	}
	if ing, ok := object.(*networkingv1.Ingress); ok {
		ing.Status = networkingv1.IngressStatus{}
	}
	return out.Interface()
}

// add adds an object to those of a compile.
func add(in *inputs.Inputs, q kubewatch.Query, o metav1.Object) {
	switch value := o.(type) {
	case *networkingv1.Ingress:
		in.Ingresses = append(in.Ingresses, object(q, value))
	case *networkingv1.IngressClass:
		in.Classes = append(in.Classes, object(q, value))
	case *corev1.Service:
		in.Services = append(in.Services, object(q, value))
	case *discoveryv1.EndpointSlice:
		in.EndpointSlices = append(in.EndpointSlices, object(q, value))
	case *corev1.Secret:
		in.Secrets = append(in.Secrets, object(q, value))
	case *corev1.ConfigMap:
		in.ConfigMaps = append(in.ConfigMaps, object(q, value))
	case *corev1.Namespace:
		in.Namespaces = append(in.Namespaces, object(q, value))
	case *unstructured.Unstructured:
		in.Others = append(in.Others, inputs.Other(value))
	default:
		in.Gateway.Add(o)
	}
}

func object[T any](q kubewatch.Query, value *T) inputs.Object[T] {
	named, _ := any(value).(metav1.Object)
	return inputs.Object[T]{Ref: inputs.RefOf(q.APIVersion, q.Kind, named.GetNamespace(), named.GetName()), Value: value}
}
