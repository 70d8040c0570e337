package kubetest

import (
	"context"
	"fmt"
	"sync"
	"testing"

	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"
)

// A granted permission holds at once, and a removed one is refused at once, even while the API server's
// authorizer has to read other roles.
func TestRightsHoldAtOnce(t *testing.T) {
	t.Parallel()
	server := cluster.Server(t)
	namespace := server.Namespace(t)
	ctx, cancel := context.WithCancel(t.Context())
	var writers, accounts sync.WaitGroup
	for n := range 2 {
		writers.Go(func() { keepWriting(ctx, t, server, namespace, fmt.Sprint("other-", n)) })
		accounts.Go(func() { grantAndTake(t, server, namespace, fmt.Sprint("account-", n), 8) })
	}
	accounts.Wait()
	cancel()
	writers.Wait()
}

// keepWriting writes one large role after the other. The authorizer needs some milliseconds to read each.
func keepWriting(ctx context.Context, t *testing.T, server *Server, namespace, name string) {
	t.Helper()
	rules := make([]rbacv1.PolicyRule, 5000)
	for n := range rules {
		rules[n] = rbacv1.PolicyRule{APIGroups: []string{""}, Resources: []string{"secrets"}, ResourceNames: []string{fmt.Sprint(n)}, Verbs: []string{"get"}}
	}
	for n := 0; ctx.Err() == nil; n++ {
		role := &rbacv1.Role{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: fmt.Sprint(name, "-", n)}, Rules: rules}
		if err := server.Client().Create(ctx, role); err != nil && ctx.Err() == nil {
			t.Error(err)
			return
		}
	}
}

// grantAndTake lets an account list either ConfigMaps or Secrets, in turn.
func grantAndTake(t *testing.T, server *Server, namespace, account string, turns int) {
	t.Helper()
	resources := []string{"configmaps", "secrets"}
	for n := range turns {
		may, mayNot := resources[n%2], resources[(n+1)%2]
		kubeconfig := server.Grant(t, namespace, account, []rbacv1.PolicyRule{{APIGroups: []string{""}, Resources: []string{may}, Verbs: []string{"list"}}})
		config, err := clientcmd.BuildConfigFromFlags("", kubeconfig)
		if err != nil {
			t.Error(err)
			return
		}
		list := func(resource string) error {
			return kubernetes.NewForConfigOrDie(config).CoreV1().RESTClient().Get().Namespace(namespace).Resource(resource).Do(t.Context()).Error()
		}
		if err := list(may); err != nil {
			t.Errorf("granted for the %d. time: %v", n+1, err)
		}
		if err := list(mayNot); !apierrors.IsForbidden(err) {
			t.Errorf("taken away for the %d. time: %v", n+1, err)
		}
	}
}
