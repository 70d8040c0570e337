package kubetest

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/client-go/tools/clientcmd/api"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// ServiceAccount makes a ServiceAccount if there is none, and returns the path of a
// kubeconfig with a token for it. It may do what RBAC lets it do: nothing, unless
// the test applies rules.
func (s *Server) ServiceAccount(tb testing.TB, namespace, name string) (kubeconfig string) {
	tb.Helper()
	content, err := s.ServiceAccountConfig(tb.Context(), namespace, name)
	if err != nil {
		tb.Fatal(err)
	}
	kubeconfig = filepath.Join(tb.TempDir(), "kubeconfig")
	if err := os.WriteFile(kubeconfig, content, 0o600); err != nil {
		tb.Fatal(err)
	}
	return kubeconfig
}

// ServiceAccountConfig is ServiceAccount where there is no test. It returns the
// kubeconfig itself.
func (s *Server) ServiceAccountConfig(ctx context.Context, namespace, name string) ([]byte, error) {
	account := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}}
	if err := client.IgnoreAlreadyExists(s.client.Create(ctx, account)); err != nil {
		return nil, fmt.Errorf("make ServiceAccount %s/%s: %w", namespace, name, err)
	}
	token := &authenticationv1.TokenRequest{}
	if err := s.client.SubResource("token").Create(ctx, account, token); err != nil {
		return nil, fmt.Errorf("make a token for ServiceAccount %s/%s: %w", namespace, name, err)
	}
	return clientcmd.Write(api.Config{
		Clusters:       map[string]*api.Cluster{"test": {Server: s.env.Config.Host, CertificateAuthorityData: s.env.Config.CAData}},
		AuthInfos:      map[string]*api.AuthInfo{name: {Token: token.Status.Token}},
		Contexts:       map[string]*api.Context{"test": {Cluster: "test", AuthInfo: name, Namespace: namespace}},
		CurrentContext: "test",
	})
}
