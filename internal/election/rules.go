package election

import rbacv1 "k8s.io/api/rbac/v1"

// Rules returns what an elector must be allowed to do in the namespace of its
// Lease. Creating cannot be limited to a name, for the API server does not know
// it yet when it decides.
func Rules(lease string) []rbacv1.PolicyRule {
	return []rbacv1.PolicyRule{
		{APIGroups: []string{"coordination.k8s.io"}, Resources: []string{"leases"}, Verbs: []string{"create"}},
		{APIGroups: []string{"coordination.k8s.io"}, Resources: []string{"leases"}, ResourceNames: []string{lease}, Verbs: []string{"get", "update"}},
	}
}
