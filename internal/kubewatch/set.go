// Package kubewatch watches the objects of a cluster that a plan names, and holds what it knows of
// them.
//
// A plan is a list of queries ([Query]). A [Set] watches what its plan has, begins and ends watches as
// the plan changes, and says how far each query has come ([QueryState]). The permissions that a plan
// needs follow from the same queries ([Rules]). Both halves and discovery use it.
//
// It promises that an object is never taken for deleted because it was not found:
//   - While an API server is out of reach, or a permission is gone, or a kind is not known
//     any more, objects are held as they were. Only an answer of the API server takes an
//     object away.
//   - No query is said to be known ([QueryState.Synced]) before all of its objects were listed
//     once. A query that may not be read, and a kind that the cluster does not know, differ
//     from a query that has no objects.
//   - An object that is missing in a list differs from one that the API server says was
//     deleted ([Event.Missing]).
//   - An object that cannot be converted harms no other one: it is held as it was before.
//
// A watch that fails is tried again, at growing intervals. Callers decide what the objects mean and
// what to wait for.
package kubewatch

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"time"

	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"github.com/hapsnap/hapsnap/internal/rbac"
)

// Options say how objects are listed, converted and handed on. Only Open is required.
type Options struct {
	// Open returns how the objects of a query are listed, and whether the cluster has the kind. If it
	// returns no error, its answer is final, until the API server does not find the resource.
	Open func(ctx context.Context, q Query) (resource Resource, found bool, err error)
	// Convert returns the function that makes what is kept of an object of the query. The function must
	// return its own results unchanged. If it returns an error, the object is held as it was, if it was
	// known.
	Convert func(q Query) func(object any) (any, error)
	// Equal reports whether two versions of an object are the same to the caller.
	Equal func(a, b metav1.Object) bool
	// Handle receives what happens to objects. With it, the Set keeps only the names of objects. It is
	// called while the Set is locked, and must not call the Set.
	Handle func(Event)
	// Stands is called when the state of a query, or the plan, may have changed. It is called while the Set is
	// locked, and must not call the Set.
	Stands func()
	// Ended is called when Run ends and everything is forgotten. It is called while the Set is locked,
	// and must not call the Set.
	Ended func()
}

// Event says what happened to an object.
type Event struct {
	Query Query
	Name  types.NamespacedName
	// Object is nil if the object is gone, or no query wants it any more.
	Object metav1.Object
	// Missing means that the object was not in a list. The API server did not say that it was deleted.
	Missing bool
	// At is when the API server reported the change. It is zero if nothing happened to the object itself: the
	// first list has it, or no query wants it any more.
	At time.Time
}

// QueryState says how far the watch of a query has come.
type QueryState struct {
	Query Query
	// Synced means that all objects were known at one time.
	Synced bool
	// Absent means that the cluster certainly does not know the kind, or did not when it last answered.
	Absent bool
	// Err says why nothing new has been known since the time Since. It is nil while the watch works.
	Err   error
	Since time.Time
	// Count is how many objects are known. Objects holds them if no Handle takes them. They are as
	// Convert returned them, and must not be changed.
	Count   int
	Objects map[types.NamespacedName]metav1.Object
}

// Text names the query, and says why nothing new is known of it, if there is a reason.
func (s QueryState) Text() string {
	if s.Err == nil {
		return s.Query.String()
	}
	return fmt.Sprintf("%s (%v)", s.Query, s.Err)
}

// Forbidden reports whether the API server refuses to let the query be read.
func (s QueryState) Forbidden() bool { return apierrors.IsForbidden(s.Err) }

// Trouble returns Err, unless it only says that the cluster does not know an optional kind. It is trouble if objects of
// that kind are held: they did not go with the kind, so a version of its definition is not served any more, and whoever
// starts anew will not know them.
func (s QueryState) Trouble() error {
	if _, unknown := errors.AsType[unknownError](s.Err); unknown && s.Query.Optional && s.Count == 0 {
		return nil
	}
	return s.Err
}

// Set watches the objects of a plan. It knows nothing until [Set.Plan] gives it a plan and [Set.Run]
// runs. Its methods may be called at the same time.
type Set struct {
	options Options
	changed chan struct{}
	replan  chan struct{}

	mu      sync.Mutex
	planned []Query // sorted; nil until there is a plan
	watches map[Query]*watcher
}

// New returns a Set without a plan.
func New(o Options) *Set {
	return &Set{options: o, changed: make(chan struct{}, 1), replan: make(chan struct{}, 1), watches: map[Query]*watcher{}}
}

// Plan replaces the plan, and reports whether the new one has a query that was not watched. The Set forgets the
// objects of queries that are not in it.
func (s *Set) Plan(queries []Query) (added bool) {
	planned := slices.SortedFunc(slices.Values(queries), Query.Compare)
	planned = append([]Query{}, slices.Compact(planned)...)
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.planned != nil && slices.Equal(planned, s.planned) {
		return false
	}
	for q, w := range s.watches {
		if _, found := slices.BinarySearchFunc(planned, q, Query.Compare); !found {
			delete(s.watches, q)
			w.end()
		}
	}
	for _, q := range planned {
		if s.watches[q] == nil {
			s.watches[q] = newWatcher(s, q)
			added = true
		}
	}
	s.planned = planned
	s.stands()
	Signal(s.replan)
	return added
}

// Run watches what is planned until ctx is done. Then the Set forgets everything, including its plan. It may
// run again.
func (s *Set) Run(ctx context.Context, log *slog.Logger) {
	ctx, stop := context.WithCancel(ctx)
	defer s.forget()
	defer stop()
	for {
		for _, begin := range s.begin(ctx, log) {
			// Run does not wait for it: between two tries of a list a reflector does not check whether
			// it has to end.
			go begin()
		}
		select {
		case <-ctx.Done():
			return
		case <-s.replan:
		}
	}
}

// begin returns a function that begins the watches which were planned and do not run yet.
func (s *Set) begin(ctx context.Context, log *slog.Logger) []func() {
	s.mu.Lock()
	defer s.mu.Unlock()
	var out []func()
	patience := patience(len(s.planned))
	for _, q := range s.planned {
		if w := s.watches[q]; w.stop == nil {
			var following context.Context
			following, w.stop = context.WithCancel(ctx)
			out = append(out, func() { w.run(following, patience, log) })
		}
	}
	return out
}

// forget puts the Set back into the state before its first plan. Objects are forgotten without events.
func (s *Set) forget() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, w := range s.watches {
		w.ended = true // the API server may still answer
	}
	if s.planned, s.watches = nil, map[Query]*watcher{}; s.options.Ended != nil {
		s.options.Ended()
	}
}

// Changes sends when objects changed, or when the state of a query that was not synced changed.
func (s *Set) Changes() <-chan struct{} { return s.changed }

// Read calls use with the states of the queries, in the order of the plan. Nothing changes until use
// returns; it must not call the Set.
func (s *Set) Read(use func([]QueryState)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	out := make([]QueryState, 0, len(s.planned))
	for _, q := range s.planned {
		out = append(out, s.watches[q].state())
	}
	use(out)
}

func (s *Set) stands() {
	if s.options.Stands != nil {
		s.options.Stands()
	}
}

// Signal sends without waiting: one signal that was not received yet stands for all.
func Signal(c chan<- struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

// Query is one list of objects to watch.
type Query struct {
	APIVersion, Kind string
	Namespace        string // "" is all of them, or none for a kind of the cluster's
	Name             string // "" is any
	Labels, Fields   string // selectors
	// Optional says that the cluster may lack the kind.
	Optional bool
	// Content says that the caller keeps the whole content of objects, except for the fields in Drop,
	// which are separated by spaces. Here the two only tell queries apart.
	Content bool
	Drop    string
}

// String names the query as people do: "Secret shop/web", "Services in shop".
func (q Query) String() string {
	if q.Name != "" {
		return q.Kind + " " + strings.TrimPrefix(q.Namespace+"/"+q.Name, "/")
	}
	text := plural(q.Kind)
	if q.Namespace != "" {
		text += " in " + q.Namespace
	}
	for _, selector := range []string{q.Labels, q.Fields} {
		if selector != "" {
			text += " with " + selector
		}
	}
	return text
}

// plural returns the plural of a kind, as in "Ingresses".
func plural(kind string) string {
	switch {
	case strings.HasSuffix(kind, "s"), strings.HasSuffix(kind, "x"), strings.HasSuffix(kind, "ch"), strings.HasSuffix(kind, "sh"):
		return kind + "es"
	case strings.HasSuffix(kind, "y") && !strings.ContainsAny(kind[max(0, len(kind)-2):len(kind)-1], "aeiou"):
		return strings.TrimSuffix(kind, "y") + "ies"
	}
	return kind + "s"
}

// Compare orders queries.
func (q Query) Compare(o Query) int {
	return cmp.Or(cmp.Compare(q.APIVersion, o.APIVersion), cmp.Compare(q.Kind, o.Kind), cmp.Compare(q.Namespace, o.Namespace),
		cmp.Compare(q.Name, o.Name), cmp.Compare(q.Labels, o.Labels), cmp.Compare(q.Fields, o.Fields),
		cmp.Compare(q.Drop, o.Drop), compareBool(q.Content, o.Content), compareBool(q.Optional, o.Optional))
}

func compareBool(a, b bool) int {
	switch {
	case a == b:
		return 0
	case b:
		return -1
	}
	return 1
}

// narrow returns the options of a list or watch of the query.
func (q Query) narrow(o metav1.ListOptions) metav1.ListOptions {
	o.LabelSelector, o.FieldSelector = q.Labels, q.Fields
	if q.Name != "" {
		o.FieldSelector = fields.OneTermEqualSelector(metav1.ObjectNameField, q.Name).String()
	}
	return o
}

// builtIn are the resources of kinds that every cluster has.
var builtIn = map[schema.GroupVersionKind]string{
	{Group: "networking.k8s.io", Version: "v1", Kind: "Ingress"}:      "ingresses",
	{Group: "networking.k8s.io", Version: "v1", Kind: "IngressClass"}: "ingressclasses",
	{Version: "v1", Kind: "Service"}:                                  "services",
	{Version: "v1", Kind: "Secret"}:                                   "secrets",
	{Version: "v1", Kind: "ConfigMap"}:                                "configmaps",
	{Version: "v1", Kind: "Namespace"}:                                "namespaces",
	{Version: "v1", Kind: "Pod"}:                                      "pods",
	{Version: "v1", Kind: "Node"}:                                     "nodes",
	{Group: "discovery.k8s.io", Version: "v1", Kind: "EndpointSlice"}: "endpointslices",
}

// BuiltIn returns the resource of a kind that every cluster has, and whether it is one.
func BuiltIn(apiVersion, kind string) (schema.GroupVersionResource, bool) {
	version, err := schema.ParseGroupVersion(apiVersion)
	if err != nil {
		return schema.GroupVersionResource{}, false
	}
	name, known := builtIn[version.WithKind(kind)]
	return version.WithResource(name), known
}

// reading are the verbs that a watch needs.
var reading = []string{"get", "list", "watch"}

// Rules returns exactly the permissions that a plan needs, by namespace and by the purpose of each query. The
// caller gives the resource of a kind that some clusters lack. Roles have no selectors: a query with labels
// needs all objects of its namespace.
func Rules(plan []Query, concern func(Query) string, resource func(apiVersion, kind string) string) []rbac.Grant {
	type place struct{ namespace, concern string }
	rules := map[place][]rbacv1.PolicyRule{}
	for _, q := range plan {
		of, known := BuiltIn(q.APIVersion, q.Kind)
		if !known {
			version, _ := schema.ParseGroupVersion(q.APIVersion) // of a configuration that was checked
			of = version.WithResource(resource(q.APIVersion, q.Kind))
		}
		rule := rbacv1.PolicyRule{APIGroups: []string{of.Group}, Resources: []string{of.Resource}, Verbs: reading}
		if q.Name != "" {
			rule.ResourceNames = []string{q.Name}
		}
		at := place{q.Namespace, concern(q)}
		rules[at] = append(rules[at], rule)
	}
	var out []rbac.Grant
	for at, of := range rules {
		out = rbac.Join(out, rbac.Grant{Namespace: at.namespace, Concern: at.concern, Rules: merge(of)})
	}
	return out
}

// merge joins rules for one group that differ only in their resources, or in the names of one resource,
// and leaves out rules that another one covers.
func merge(rules []rbacv1.PolicyRule) []rbacv1.PolicyRule {
	whole := map[string][]string{}    // resources by group
	named := map[[2]string][]string{} // names by group and resource
	for _, r := range rules {
		group, resource := r.APIGroups[0], r.Resources[0]
		if len(r.ResourceNames) == 0 {
			whole[group] = append(whole[group], resource)
			continue
		}
		named[[2]string{group, resource}] = append(named[[2]string{group, resource}], r.ResourceNames...)
	}
	var out []rbacv1.PolicyRule
	for group, resources := range whole {
		out = append(out, rbacv1.PolicyRule{APIGroups: []string{group}, Resources: sorted(resources), Verbs: reading})
	}
	for of, names := range named {
		if !slices.Contains(whole[of[0]], of[1]) {
			out = append(out, rbacv1.PolicyRule{APIGroups: of[:1:1], Resources: []string{of[1]}, ResourceNames: sorted(names), Verbs: reading})
		}
	}
	slices.SortFunc(out, func(a, b rbacv1.PolicyRule) int {
		return cmp.Or(slices.Compare(a.APIGroups, b.APIGroups), cmp.Compare(len(a.ResourceNames), len(b.ResourceNames)), slices.Compare(a.Resources, b.Resources))
	})
	return out
}

// sorted returns the texts sorted, each once.
func sorted(texts []string) []string {
	slices.Sort(texts)
	return slices.Compact(texts)
}
