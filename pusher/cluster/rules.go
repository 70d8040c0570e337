package cluster

import (
	"maps"
	"slices"

	rbacv1 "k8s.io/api/rbac/v1"
)

// reading is what watching takes.
var reading = []string{"get", "list", "watch"}

// Rules returns what must be allowed for a plan, and no more, by namespace; "" is
// all of them.
func Rules(plan []Query) map[string][]rbacv1.PolicyRule {
	secrets := map[string][]string{}
	out := map[string][]rbacv1.PolicyRule{}
	for _, q := range plan {
		if q.Kind == kindSecret {
			secrets[q.Namespace] = append(secrets[q.Namespace], q.Name)
			continue
		}
		out[q.Namespace] = append(out[q.Namespace], rbacv1.PolicyRule{
			APIGroups: []string{"discovery.k8s.io"}, Resources: []string{"endpointslices"}, Verbs: reading,
		})
	}
	for _, namespace := range slices.Sorted(maps.Keys(secrets)) {
		out[namespace] = append(out[namespace], rbacv1.PolicyRule{
			APIGroups: []string{""}, Resources: []string{"secrets"}, ResourceNames: secrets[namespace], Verbs: reading,
		})
	}
	return out
}
