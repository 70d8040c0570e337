package configmapstore

import (
	"testing"
	"time"

	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	corev1client "k8s.io/client-go/kubernetes/typed/core/v1"
)

// secretsAs returns a client with the permissions of the rules.
func (p *place) secretsAs(account string, rules []rbacv1.PolicyRule) corev1client.SecretsGetter {
	p.Helper()
	client, err := kubernetes.NewForConfig(p.configOf(account, rules))
	if err != nil {
		p.Fatal(err)
	}
	return client.CoreV1()
}

// With exactly the permissions of their roles, a compiler writes its report, also into a Secret that does not
// exist yet, and a page reads it. Neither has access to other Secrets.
func TestCompilerReport(t *testing.T) {
	t.Parallel()
	p := newPlace(t)
	name, other := types.NamespacedName{Namespace: p.namespace, Name: "report"}, types.NamespacedName{Namespace: p.namespace, Name: "other"}
	writer, reader := p.secretsAs("writer", WritingReport("report")), p.secretsAs("reader", ReadingReport("report"))
	if _, _, err := ReadCompilerReport(t.Context(), reader, name); !apierrors.IsNotFound(err) {
		t.Errorf("nothing was written, and it is read: %v", err)
	}
	at := time.Date(2026, 3, 1, 8, 0, 0, 0, time.UTC)
	for i, report := range []string{`{"found":[]}`, `{"found":[{"reason":"wrong"}]}`} {
		if err := WriteCompilerReport(t.Context(), writer, name, []byte(report), at.Add(time.Duration(i)*time.Minute)); err != nil {
			t.Fatal(err)
		}
		got, when, err := ReadCompilerReport(t.Context(), reader, name)
		if err != nil || string(got) != report || !when.Equal(at.Add(time.Duration(i)*time.Minute)) {
			t.Errorf("read %q of %v, %v", got, when, err)
		}
	}
	if err := WriteCompilerReport(t.Context(), writer, other, []byte("{}"), at); !apierrors.IsForbidden(err) {
		t.Errorf("another Secret is written: %v", err)
	}
	for who, client := range map[string]corev1client.SecretsGetter{"reader": reader, "writer": writer} {
		if _, _, err := ReadCompilerReport(t.Context(), client, other); !apierrors.IsForbidden(err) {
			t.Errorf("the %s reads another Secret: %v", who, err)
		}
	}
	if err := WriteCompilerReport(t.Context(), reader, name, []byte("{}"), at); !apierrors.IsForbidden(err) {
		t.Errorf("the reader writes: %v", err)
	}
}
