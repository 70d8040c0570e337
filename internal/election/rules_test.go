package election_test

import (
	"testing"

	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/hapsnap/hapsnap/internal/testing/kubetest"
)

// permitted returns how a service account connects that may do what the rules
// say, in one namespace, and nothing else.
func permitted(t *testing.T, server *kubetest.Server, namespace string, rules []rbacv1.PolicyRule) *rest.Config {
	t.Helper()
	meta := metav1.ObjectMeta{Namespace: namespace, Name: "compiler"}
	kubeconfig := server.ServiceAccount(t, namespace, meta.Name)
	for _, err := range []error{
		server.Client().Create(t.Context(), &rbacv1.Role{ObjectMeta: meta, Rules: rules}),
		server.Client().Create(t.Context(), &rbacv1.RoleBinding{
			ObjectMeta: meta, RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: meta.Name},
			Subjects: []rbacv1.Subject{{Kind: rbacv1.ServiceAccountKind, Namespace: namespace, Name: meta.Name}},
		}),
	} {
		if err != nil {
			t.Fatal(err)
		}
	}
	config, err := clientcmd.BuildConfigFromFlags("", kubeconfig)
	if err != nil {
		t.Fatal(err)
	}
	return config
}
