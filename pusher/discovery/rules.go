package discovery

import (
	"slices"

	rbacv1 "k8s.io/api/rbac/v1"

	"github.com/hapsnap/hapsnap/pusher/fleet"
)

// Rules returns what must be allowed to find these pods, by namespace; "" is all of
// them, which nodes are in. Pods cannot be limited to a label.
func Rules(spec fleet.Pods) map[string][]rbacv1.PolicyRule {
	reading := []string{"get", "list", "watch"}
	secrets := slices.DeleteFunc([]string{spec.Secret, spec.CASecret, spec.ClientSecret}, func(name string) bool { return name == "" })
	slices.Sort(secrets)
	out := map[string][]rbacv1.PolicyRule{spec.Namespace: {
		{APIGroups: []string{""}, Resources: []string{"pods"}, Verbs: reading},
		{APIGroups: []string{""}, Resources: []string{"secrets"}, ResourceNames: slices.Compact(secrets), Verbs: reading},
	}}
	if spec.NodeZoneLabel != "" {
		out[""] = []rbacv1.PolicyRule{{APIGroups: []string{""}, Resources: []string{"nodes"}, Verbs: reading}}
	}
	return out
}
