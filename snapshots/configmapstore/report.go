package configmapstore

import (
	"context"
	"time"

	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	applycorev1 "k8s.io/client-go/applyconfigurations/core/v1"
	corev1client "k8s.io/client-go/kubernetes/typed/core/v1"
)

// ReportKey is the key, in the Secret with the report of a compiler, of the report: the JSON that the compiler
// answers at /status.
const ReportKey = "report.json"

// ReportedAnnotation says of that Secret when its compiler last said what is in it.
const ReportedAnnotation = "hapsnap.dev/reported"

// MaxReport is how many bytes a report may have: a Secret may have 1 MiB in all.
const MaxReport = 900 << 10

// WriteCompilerReport writes the report of a compiler into a Secret, and creates that if it does not exist. Other
// keys stay.
func WriteCompilerReport(ctx context.Context, core corev1client.SecretsGetter, name types.NamespacedName, report []byte, at time.Time) error {
	o := applycorev1.Secret(name.Name, name.Namespace).
		WithAnnotations(map[string]string{ReportedAnnotation: at.UTC().Format(time.RFC3339)}).
		WithData(map[string][]byte{ReportKey: report})
	_, err := core.Secrets(name.Namespace).Apply(ctx, o, metav1.ApplyOptions{FieldManager: "hapsnap-compiler", Force: true})
	return err
}

// ReadCompilerReport returns what a compiler wrote last, and when: the zero time if nothing says so. The report is
// nil in a Secret without one.
func ReadCompilerReport(ctx context.Context, core corev1client.SecretsGetter, name types.NamespacedName) (report []byte, at time.Time, err error) {
	found, err := core.Secrets(name.Namespace).Get(ctx, name.Name, metav1.GetOptions{})
	if err != nil {
		return nil, time.Time{}, err
	}
	at, _ = time.Parse(time.RFC3339, found.Annotations[ReportedAnnotation]) // a time that nobody can read is long ago
	return found.Data[ReportKey], at, nil
}

// WritingReport returns the permissions to write a report. The API server asks for create by name here, since
// an apply says the name.
func WritingReport(secret string) []rbacv1.PolicyRule { return ofReport(secret, "create", "patch") }

// ReadingReport returns the permission to read it.
func ReadingReport(secret string) []rbacv1.PolicyRule { return ofReport(secret, "get") }

func ofReport(secret string, verbs ...string) []rbacv1.PolicyRule {
	return []rbacv1.PolicyRule{{APIGroups: []string{""}, Resources: []string{"secrets"}, ResourceNames: []string{secret}, Verbs: verbs}}
}
