package admission

import (
	"context"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	kube "sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/hapsnap/hapsnap/internal/testing/kubetest"
)

var shared kubetest.Shared

func TestMain(m *testing.M) { os.Exit(kubetest.Main(m, &shared)) }

const registered = `apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingWebhookConfiguration
metadata: {name: edge}
webhooks:
- {name: one.hapsnap.dev, clientConfig: {service: {namespace: ns, name: edge, path: /validate}}, rules: [], sideEffects: None, admissionReviewVersions: [v1]}
- {name: two.hapsnap.dev, clientConfig: {service: {namespace: ns, name: edge}}, rules: [], sideEffects: None, admissionReviewVersions: [v1]}
- {name: three.hapsnap.dev, clientConfig: {url: "https://elsewhere.example"}, rules: [], sideEffects: None, admissionReviewVersions: [v1]}
`

func registration(t *testing.T, config *rest.Config) Registration {
	t.Helper()
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	return Registration{Client: client.AdmissionregistrationV1().ValidatingWebhookConfigurations(), Name: "edge"}
}

// The names of the webhook are those of its Services. Their authority is written once to each webhook that is a
// Service, with exactly the permissions of the rules.
func TestRegistration(t *testing.T) {
	t.Parallel()
	server := shared.Server(t)
	namespace := server.Namespace(t)
	config, err := clientcmd.BuildConfigFromFlags("", server.ServiceAccount(t, namespace, "compiler"))
	if err != nil {
		t.Fatal(err)
	}
	r := registration(t, config)
	if _, err := r.DNSNames(t.Context()); err == nil || !strings.Contains(err.Error(), "forbidden") {
		t.Errorf("without a role: %v", err)
	}
	role := &rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: "webhook"}, Rules: RegistrationRules("edge")}
	binding := &rbacv1.ClusterRoleBinding{ObjectMeta: role.ObjectMeta, RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "webhook"}, Subjects: []rbacv1.Subject{{Kind: "ServiceAccount", Namespace: namespace, Name: "compiler"}}}
	if err := server.Client().Create(t.Context(), role); err != nil {
		t.Fatal(err)
	}
	if err := server.Client().Create(t.Context(), binding); err != nil {
		t.Fatal(err)
	}
	server.Apply(t, registered)
	await(t, "the names are read", func() error {
		names, err := r.DNSNames(t.Context())
		if err == nil && !slices.Equal(names, []string{"edge.ns.svc"}) {
			err = fmt.Errorf("they are %q", names)
		}
		return err
	})
	certificate, _ := pair(t, 1)
	if err := r.Trust(t.Context(), certificate); err != nil {
		t.Fatal(err)
	}
	found, err := r.Client.Get(t.Context(), "edge", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	for i, want := range []string{string(certificate), string(certificate), ""} {
		if got := string(found.Webhooks[i].ClientConfig.CABundle); got != want {
			t.Errorf("webhook %s trusts %q", found.Webhooks[i].Name, got)
		}
	}
	if err := r.Trust(t.Context(), certificate); err != nil {
		t.Fatal(err)
	}
	if again, err := r.Client.Get(t.Context(), "edge", metav1.GetOptions{}); err != nil || again.ResourceVersion != found.ResourceVersion {
		t.Errorf("it was written again: %v", err)
	}
	// A Secret that was made again has only its own authority, and pods still serve the former certificate.
	next, _ := pair(t, 2)
	for range 2 {
		if err := r.Trust(t.Context(), next); err != nil {
			t.Fatal(err)
		}
		both, err := r.Client.Get(t.Context(), "edge", metav1.GetOptions{})
		if err != nil {
			t.Fatal(err)
		}
		if got := string(both.Webhooks[1].ClientConfig.CABundle); got != string(next)+string(certificate) {
			t.Errorf("after the Secret was made again it trusts %q", got)
		}
	}
}

// With the failure policy Fail and no compiler nothing is let in. Objects that are being deleted can lose their
// finalizers, so namespaces can go.
func TestNobodyAnswersAboutADeletion(t *testing.T) {
	t.Parallel()
	server := shared.Server(t)
	namespace := server.Namespace(t)
	var c admissionregistrationv1.ValidatingWebhookConfiguration
	readExample(t, &c)
	c.Name = namespace
	fail := admissionregistrationv1.Fail
	for i := range c.Webhooks {
		w := &c.Webhooks[i]
		w.FailurePolicy = &fail
		w.NamespaceSelector = &metav1.LabelSelector{MatchLabels: map[string]string{corev1.LabelMetadataName: namespace}}
		w.ClientConfig.Service.Name = "nobody"
	}
	ingress := func(name string, finalizers ...string) *networkingv1.Ingress {
		return &networkingv1.Ingress{
			ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name, Finalizers: finalizers},
			Spec:       networkingv1.IngressSpec{Rules: []networkingv1.IngressRule{{Host: "a.example"}}},
		}
	}
	going := ingress("going", "example.com/balancer")
	if err := server.Client().Create(t.Context(), going); err != nil {
		t.Fatal(err)
	}
	if err := server.Client().Create(t.Context(), &c); err != nil {
		t.Fatal(err)
	}
	await(t, "nothing is let in", func() error {
		err := server.Client().Create(t.Context(), ingress("new"), kube.DryRunAll)
		if err == nil || !strings.Contains(err.Error(), "failed calling webhook") {
			return fmt.Errorf("the answer is %v", err)
		}
		return nil
	})
	// Nobody gets past the webhook with a deletionTimestamp of their own, since the API server takes none from clients.
	own := metav1.Now()
	forged := ingress("forged", "example.com/balancer")
	forged.DeletionTimestamp = &own
	if err := server.Client().Create(t.Context(), forged); err == nil {
		t.Error("an Ingress with a deletionTimestamp is let in")
	}
	forged = going.DeepCopy()
	forged.DeletionTimestamp, forged.Spec.Rules[0].Host = &own, "b.example"
	if err := server.Client().Update(t.Context(), forged); err == nil {
		t.Error("a change with a deletionTimestamp is let in")
	}
	if err := server.Client().Delete(t.Context(), going); err != nil {
		t.Fatal(err)
	}
	before := kube.MergeFrom(going.DeepCopy())
	going.Finalizers = nil
	if err := server.Client().Patch(t.Context(), going, before); err != nil {
		t.Error(err)
	}
}

// A change that is made at the same time is not overwritten, and the order of webhooks may have changed.
func TestRegistrationThatChanges(t *testing.T) {
	t.Parallel()
	server := shared.Server(t)
	server.Apply(t, strings.ReplaceAll(registered, "name: edge}\nwebhooks", "name: changes}\nwebhooks"))
	r := registration(t, server.Config())
	r.Name = "changes"
	r.Client = late{r.Client, func(ctx context.Context) {
		found, err := r.Client.Get(ctx, "changes", metav1.GetOptions{})
		if err != nil {
			t.Fatal(err)
		}
		slices.Reverse(found.Webhooks)
		if err := server.Client().Update(ctx, found); err != nil {
			t.Fatal(err)
		}
	}}
	certificate, _ := pair(t, 1)
	if err := r.Trust(t.Context(), certificate); err == nil {
		t.Error("another's change was overwritten")
	}
}

// late makes something happen between a read and a write.
type late struct {
	Registrations
	between func(ctx context.Context)
}

func (l late) Patch(ctx context.Context, name string, kind types.PatchType, data []byte, o metav1.PatchOptions, s ...string) (*admissionregistrationv1.ValidatingWebhookConfiguration, error) {
	l.between(ctx)
	return l.Registrations.Patch(ctx, name, kind, data, o, s...)
}
