package provisioner

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/discovery/cached/memory"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/restmapper"
	"k8s.io/client-go/util/csaupgrade"
	gatewayv1 "sigs.k8s.io/gateway-api/apis/v1"

	configured "github.com/hapsnap/hapsnap/compiler/config/gateways"
	"github.com/hapsnap/hapsnap/internal/kubewatch"
)

// ErrForeign means that an object that a fleet needs belongs to somebody else.
var ErrForeign = errors.New("is not the fleet's")

// cluster makes and deletes the objects of fleets.
type cluster struct {
	client      dynamic.Interface
	kinds       meta.ResettableRESTMapper
	provisioner string
}

func newCluster(config *rest.Config, provisioner string) (*cluster, error) {
	client, err := dynamic.NewForConfig(config)
	if err != nil {
		return nil, fmt.Errorf("connect to %s: %w", config.Host, err)
	}
	kinds, err := discovery.NewDiscoveryClientForConfig(config)
	if err != nil {
		return nil, fmt.Errorf("connect to %s: %w", config.Host, err)
	}
	return &cluster{client, restmapper.NewDeferredDiscoveryRESTMapper(memory.NewMemCacheClient(kinds)), provisioner}, nil
}

// resource returns the API in which an object is stored.
func (c *cluster) resource(r Ref) (dynamic.ResourceInterface, error) {
	kind := schema.FromAPIVersionAndKind(r.APIVersion, r.Kind)
	mapping, err := c.kinds.RESTMapping(kind.GroupKind(), kind.Version)
	if err != nil {
		return nil, fmt.Errorf("find %s: %w", kind, err)
	}
	if inside := mapping.Scope.Name() == meta.RESTScopeNameNamespace; inside != (r.Namespace != "") {
		return nil, fmt.Errorf("%s: is in a namespace, or is to be in one, and the other is not so", r)
	}
	if r.Namespace == "" {
		return c.client.Resource(mapping.Resource), nil
	}
	return c.client.Resource(mapping.Resource).Namespace(r.Namespace), nil
}

// get returns an object, nil if it does not exist.
func (c *cluster) get(ctx context.Context, r Ref) (*unstructured.Unstructured, error) {
	at, err := c.resource(r)
	if err != nil {
		return nil, err
	}
	o, err := at.Get(ctx, r.Name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return nil, nil //nolint:nilnil // it does not exist
	}
	if err != nil {
		return nil, fmt.Errorf("read %s: %w", r, err)
	}
	return o, nil
}

// sync applies what was rendered for a fleet, and returns its record. It applies nothing if one of the objects
// belongs to somebody else. It saves the record before it makes anything, and after it has deleted what is not
// rendered any more. If some objects cannot be applied, it applies the others, but deletes nothing.
func (c *cluster) sync(ctx context.Context, r Record, objects []*unstructured.Unstructured, save func(Record) error) (Record, error) {
	var refs []Ref
	there := map[Ref]*unstructured.Unstructured{}
	var trouble []error
	for _, o := range objects {
		ref := refOf(o)
		refs = append(refs, ref)
		now, err := c.get(ctx, ref)
		if err == nil && now != nil && !r.owns(now, c.provisioner) {
			err = fmt.Errorf("%s %w, and stays as it is: nothing of the fleet is applied until it has another name or is gone", ref, ErrForeign)
		}
		if err != nil {
			trouble = append(trouble, err)
		}
		there[ref] = now
	}
	if len(trouble) > 0 {
		return r, errors.Join(trouble...)
	}
	if all := r.with(refs); len(all.Objects) > len(r.Objects) || r.Gone {
		all.Gone = false
		if err := save(all); err != nil {
			return r, err
		}
		r = all
	}
	for _, o := range objects {
		if err := c.apply(ctx, o, there[refOf(o)]); err != nil {
			trouble = append(trouble, err)
		}
	}
	if len(trouble) > 0 {
		return r, errors.Join(trouble...)
	}
	left, err := c.remove(ctx, r, slices.DeleteFunc(slices.Clone(r.Objects), func(ref Ref) bool { return slices.Contains(refs, ref) }))
	if len(left) > 0 || err != nil || len(r.Objects) == len(refs) {
		return r, err
	}
	fewer := r
	fewer.Objects = refs
	return fewer, save(fewer)
}

// apply creates an object, or changes an existing one. It creates a new one without applying, so that it does
// not take over an object that somebody else creates meanwhile. Before it applies for the first time, it turns
// the ownership of fields by creation into ownership by applying. Otherwise fields that it leaves out later
// would stay.
func (c *cluster) apply(ctx context.Context, o, there *unstructured.Unstructured) error {
	ref := refOf(o)
	at, err := c.resource(ref)
	if err != nil {
		return err
	}
	if there == nil {
		if _, err := at.Create(ctx, o.DeepCopy(), metav1.CreateOptions{FieldManager: manager}); err != nil {
			return fmt.Errorf("create %s: %w", ref, err)
		}
		return nil
	}
	patch, err := csaupgrade.UpgradeManagedFieldsPatch(there, sets.New(manager), manager)
	if err != nil {
		return fmt.Errorf("apply %s: %w", ref, err)
	}
	if len(patch) > 0 {
		if _, err := at.Patch(ctx, ref.Name, types.JSONPatchType, patch, metav1.PatchOptions{}); err != nil {
			return fmt.Errorf("apply %s: %w", ref, err)
		}
	}
	applied := o.DeepCopy()
	applied.SetUID(there.GetUID()) // no other object that has taken its place
	if _, err := at.Apply(ctx, ref.Name, applied, metav1.ApplyOptions{FieldManager: manager, Force: true}); err != nil {
		return fmt.Errorf("apply %s: %w", ref, err)
	}
	return nil
}

// remove deletes objects of a fleet, the last made first, and returns those that stay: the store, if the whole
// fleet goes, and objects with an annotation that says so. It does not touch objects that belong to somebody
// else by now; they count as gone.
func (c *cluster) remove(ctx context.Context, r Record, refs []Ref) (left []Ref, err error) {
	var trouble []error
	for _, ref := range slices.Backward(refs) {
		o, err := c.get(ctx, ref)
		if meta.IsNoMatchError(errors.Unwrap(err)) {
			continue // the kind is gone, and its objects with it
		}
		if err != nil {
			trouble = append(trouble, err)
			continue
		}
		if o == nil || !r.owns(o, c.provisioner) {
			continue
		}
		if strings.TrimSpace(o.GetAnnotations()[keepAnnotation]) == "keep" {
			left = append(left, ref)
			continue
		}
		at, err := c.resource(ref)
		if err == nil {
			uid, background := o.GetUID(), metav1.DeletePropagationBackground
			err = at.Delete(ctx, ref.Name, metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: &uid}, PropagationPolicy: &background})
		}
		if err != nil && !apierrors.IsNotFound(err) {
			trouble = append(trouble, fmt.Errorf("delete %s: %w", ref, err))
		}
	}
	slices.Reverse(left)
	return left, errors.Join(trouble...)
}

// named returns the name of a Gateway that names a fleet, according to the API server now, or "". A Gateway
// counts unless its class is certainly another controller's.
func (c *cluster) named(ctx context.Context, fleet types.NamespacedName, foreign map[string]bool) (string, error) {
	list, err := c.client.Resource(gateways).Namespace(fleet.Namespace).List(ctx, metav1.ListOptions{})
	if err != nil {
		return "", fmt.Errorf("list the Gateways of %s once more: %w", fleet.Namespace, err)
	}
	for _, o := range list.Items {
		object, err := typed("Gateway", &o)
		if err != nil {
			return "", err
		}
		if g, ok := object.(*gatewayv1.Gateway); ok && configured.FleetOf(g) == fleet.String() && !foreign[string(g.Spec.GatewayClassName)] {
			return g.Name, nil
		}
	}
	return "", nil
}

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
	// Missing says what was never listed yet. Then nothing can be decided. Starting is set if nothing prevents it.
	Missing  error
	Starting bool
	// Stale says what is not watched at present. Then no absence is certain.
	Stale error
}

func seen(s *kubewatch.Set) Seen {
	out := Seen{World: World{Namespaces: map[string]labels.Set{}}, Starting: true}
	s.Read(func(states []kubewatch.QueryState) {
		if len(states) == 0 {
			out.Missing = errors.New("nothing is watched yet")
		}
		for _, q := range states {
			trouble := q.Trouble()
			optional := q.Query.Optional && apierrors.IsNotFound(q.Err) // the cluster does not know the kind
			if !q.Synced && !q.Absent && !optional {
				out.Missing = errors.Join(out.Missing, waits(q.Query, trouble))
				out.Starting = out.Starting && trouble == nil
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
