package statestore

import rbacv1 "k8s.io/api/rbac/v1"

// Rules returns what a pusher must be allowed to do in the namespace of its state.
// Creating cannot be limited to a name, for the API server does not know it yet when it
// decides; it is not needed where somebody has made an empty Secret.
func Rules(name string) []rbacv1.PolicyRule {
	return []rbacv1.PolicyRule{
		{APIGroups: []string{""}, Resources: []string{"secrets"}, Verbs: []string{"create"}},
		{APIGroups: []string{""}, Resources: []string{"secrets"}, ResourceNames: []string{name}, Verbs: []string{"get", "update"}},
	}
}
