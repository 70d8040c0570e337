package kubewatch

import (
	"cmp"
	"slices"

	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/hapsnap/hapsnap/internal/rbac"
)

// reading is what watching takes.
var reading = []string{"get", "list", "watch"}

// Rules returns what must be allowed for a plan, and no more, by namespace. The
// resource of a kind that clusters need not have comes from the caller. Roles know no
// selectors: a query with labels needs all objects of its namespace.
func Rules(plan []Query, resource func(apiVersion, kind string) string) []rbac.Grant {
	rules := map[string][]rbacv1.PolicyRule{}
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
		rules[q.Namespace] = append(rules[q.Namespace], rule)
	}
	var out []rbac.Grant
	for namespace, of := range rules {
		out = append(out, rbac.Grant{Namespace: namespace, Rules: merge(of)})
	}
	slices.SortFunc(out, func(a, b rbac.Grant) int { return cmp.Compare(a.Namespace, b.Namespace) })
	return out
}

// merge makes one rule of those for one group that differ only in their resources, or
// in the names of one resource, and leaves out what another one allows.
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

// sorted returns texts in order, each once.
func sorted(texts []string) []string {
	slices.Sort(texts)
	return slices.Compact(texts)
}
