package kubewatch

import (
	"cmp"
	"slices"
	"strings"

	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/hapsnap/hapsnap/internal/rbac"
)

// Query is one list of objects that is watched.
type Query struct {
	APIVersion, Kind string
	Namespace        string // "" is all of them, or none for a kind of the cluster's
	Name             string // "" is any
	Labels, Fields   string // selectors
	// Optional says that the cluster need not know the kind.
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

// Rules returns the permissions that a plan needs, and no others, by namespace and by what each query
// is for. The caller gives the resource of a kind that clusters need not have. Roles know no selectors:
// a query with labels needs all objects of its namespace.
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
