package announce

import (
	rbacv1 "k8s.io/api/rbac/v1"

	"github.com/hapsnap/hapsnap/internal/events"
)

// Rules returns what an announcer must be allowed to do, in every namespace whose
// objects are compiled and in default, where the Events on objects without a
// namespace are. Statuses are written only if the configuration says which
// addresses.
func Rules(statuses bool) []rbacv1.PolicyRule {
	rules := events.Rules()
	if statuses {
		rules = append(rules, rbacv1.PolicyRule{APIGroups: []string{"networking.k8s.io"}, Resources: []string{"ingresses/status"}, Verbs: []string{"patch"}})
	}
	return rules
}
