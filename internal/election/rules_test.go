package election_test

import (
	"testing"

	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/hapsnap/hapsnap/internal/testing/kubetest"
)

// permitted returns a connection for a service account that has the permissions of the rules, in one namespace,
// and no others.
func permitted(t *testing.T, server *kubetest.Server, namespace string, rules []rbacv1.PolicyRule) *rest.Config {
	t.Helper()
	kubeconfig := server.Grant(t, namespace, "compiler", rules)
	config, err := clientcmd.BuildConfigFromFlags("", kubeconfig)
	if err != nil {
		t.Fatal(err)
	}
	return config
}
