package provisioner

import (
	"context"
	"errors"
	"fmt"
	"slices"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"
	gatewayv1 "sigs.k8s.io/gateway-api/apis/v1"

	"github.com/hapsnap/hapsnap/internal/kubewatch"
)

// The kinds to watch. ListenerSets are younger than the rest, and a cluster may lack them.
var (
	classes      = schema.GroupVersionResource{Group: gatewayv1.GroupName, Version: "v1", Resource: "gatewayclasses"}
	gateways     = schema.GroupVersionResource{Group: gatewayv1.GroupName, Version: "v1", Resource: "gateways"}
	listenerSets = schema.GroupVersionResource{Group: gatewayv1.GroupName, Version: "v1", Resource: "listenersets"}
	namespaces   = schema.GroupVersionResource{Version: "v1", Resource: "namespaces"}
)

var resources = map[string]schema.GroupVersionResource{"GatewayClass": classes, "Gateway": gateways, "ListenerSet": listenerSets, "Namespace": namespaces}

// queries returns what a plan needs, in the namespaces that may have fleets. ListenerSets may be in any
// namespace.
func queries(in []string) []kubewatch.Query {
	group := gatewayv1.GroupVersion.String()
	out := []kubewatch.Query{{APIVersion: group, Kind: "GatewayClass"}, {APIVersion: "v1", Kind: "Namespace"}}
	if len(in) == 0 {
		in = []string{metav1.NamespaceAll}
	}
	for _, namespace := range in {
		out = append(out, kubewatch.Query{APIVersion: group, Kind: "Gateway", Namespace: namespace},
			kubewatch.Query{APIVersion: group, Kind: "ListenerSet", Namespace: namespace, Optional: true})
	}
	return out
}

func newWatch(client dynamic.Interface, in []string) *kubewatch.Set {
	s := kubewatch.New(kubewatch.Options{
		Open: func(_ context.Context, q kubewatch.Query) (kubewatch.Resource, bool, error) {
			return kubewatch.Typed[*unstructured.UnstructuredList](client.Resource(resources[q.Kind]).Namespace(q.Namespace)), true, nil
		},
		Convert: func(q kubewatch.Query) func(any) (any, error) {
			return func(object any) (any, error) { return typed(q.Kind, object) }
		},
	})
	s.Plan(queries(in))
	return s
}

// typed returns the part of an object that is kept.
func typed(kind string, object any) (any, error) {
	o, ok := object.(*unstructured.Unstructured)
	if !ok {
		return object, nil // it is our own
	}
	var out metav1.Object
	switch kind {
	case "GatewayClass":
		out = &gatewayv1.GatewayClass{}
	case "Gateway":
		out = &gatewayv1.Gateway{}
	case "ListenerSet":
		out = &gatewayv1.ListenerSet{}
	default:
		return &metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{Name: o.GetName(), Labels: o.GetLabels(), ResourceVersion: o.GetResourceVersion(), UID: o.GetUID()}}, nil
	}
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(o.Object, out); err != nil {
		return nil, fmt.Errorf("read %s %s/%s: %w", kind, o.GetNamespace(), o.GetName(), err)
	}
	out.SetManagedFields(nil)
	return out, nil
}

// Seen is what the watches know.
type Seen struct {
	World
	// Missing says what was never listed yet. Then nothing can be decided.
	Missing error
	// Stale says what is not watched at present. Then no absence is certain.
	Stale error
}

func seen(s *kubewatch.Set) Seen {
	out := Seen{World: World{Namespaces: map[string]labels.Set{}}}
	s.Read(func(states []kubewatch.QueryState) {
		if len(states) == 0 {
			out.Missing = errors.New("nothing is watched yet")
		}
		for _, q := range states {
			trouble := q.Trouble()
			optional := q.Query.Optional && apierrors.IsNotFound(q.Err) // the cluster does not know the kind
			if !q.Synced && !q.Absent && !optional {
				out.Missing = errors.Join(out.Missing, waits(q.Query, trouble))
			} else if trouble != nil && !optional {
				out.Stale = errors.Join(out.Stale, waits(q.Query, trouble))
			}
			for _, o := range q.Objects {
				switch o := o.(type) {
				case *gatewayv1.GatewayClass:
					out.Classes = append(out.Classes, o)
				case *gatewayv1.Gateway:
					out.Gateways = append(out.Gateways, o)
				case *gatewayv1.ListenerSet:
					out.Sets = append(out.Sets, o)
				default:
					out.Namespaces[o.GetName()] = o.GetLabels()
				}
			}
		}
	})
	slices.SortFunc(out.Gateways, older)
	return out
}

func waits(q kubewatch.Query, err error) error {
	if err == nil {
		return fmt.Errorf("%s are not listed yet", q)
	}
	return fmt.Errorf("cannot follow %s: %w", q, err)
}
