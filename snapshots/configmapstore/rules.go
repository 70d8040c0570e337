package configmapstore

import rbacv1 "k8s.io/api/rbac/v1"

// Reading returns what a reader of a store must be allowed to do in its namespace.
// A chunk has no name that could be known before. A reader that may not watch polls. The
// namespace itself is asked for where nothing is in it.
func Reading(namespace string) []rbacv1.PolicyRule {
	return []rbacv1.PolicyRule{
		{APIGroups: []string{""}, Resources: []string{"configmaps"}, Verbs: []string{"get", "list", "watch"}},
		{APIGroups: []string{""}, Resources: []string{"namespaces"}, ResourceNames: []string{namespace}, Verbs: []string{"get"}},
	}
}

// Writing returns what a writer of a store must be allowed to do in its namespace.
func Writing(namespace string) []rbacv1.PolicyRule {
	rules := Reading(namespace)
	rules[0].Verbs = []string{"create", "delete", "get", "list", "patch"}
	return rules
}

// WritingCompanions returns what it takes to keep certificates beside snapshots, besides
// Writing. A writer gets a Secret before it deletes it, to see whose it is.
func WritingCompanions() []rbacv1.PolicyRule {
	return []rbacv1.PolicyRule{{APIGroups: []string{""}, Resources: []string{"secrets"}, Verbs: []string{"create", "delete", "get"}}}
}

// ReadingCompanions returns what it takes to read those, besides Reading. They have no
// name that could be known before.
func ReadingCompanions() []rbacv1.PolicyRule {
	return []rbacv1.PolicyRule{{APIGroups: []string{""}, Resources: []string{"secrets"}, Verbs: []string{"get"}}}
}

// Status returns what it takes to write the status of a store, which is made with the first
// snapshot, by the compiler or the tool that delivers it.
func Status(store string) []rbacv1.PolicyRule {
	return []rbacv1.PolicyRule{
		{APIGroups: []string{""}, Resources: []string{"configmaps"}, ResourceNames: []string{statusName(store)}, Verbs: []string{"patch"}},
	}
}

// Channel returns what it takes to change the channel of a store, besides reading it. It is
// made with the first snapshot that is published, and by people where snapshots are
// delivered.
func Channel(store string) []rbacv1.PolicyRule {
	return []rbacv1.PolicyRule{
		{APIGroups: []string{""}, Resources: []string{"configmaps"}, ResourceNames: []string{ChannelName(store)}, Verbs: []string{"update"}},
	}
}

// Creating returns what it takes to make both where they are not there. It cannot be limited
// to names: who may do that can make ConfigMaps that look like snapshots.
func Creating() []rbacv1.PolicyRule {
	return []rbacv1.PolicyRule{{APIGroups: []string{""}, Resources: []string{"configmaps"}, Verbs: []string{"create"}}}
}
