package compiler

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/hapsnap/hapsnap/compiler/config"
	"github.com/hapsnap/hapsnap/compiler/diag"
	"github.com/hapsnap/hapsnap/compiler/inputs"
	"github.com/hapsnap/hapsnap/internal/testing/worlds"
)

// A namespace that leads to more external names than it may loses its youngest objects. A name counts once, however many
// Services have it, and whoever leads to one that others lead to anyway stays.
func TestExternalNamesOfANamespace(t *testing.T) {
	t.Parallel()
	in := worlds.Ingresses(10)
	class, prefix := "hapsnap", networkingv1.PathTypePrefix
	for i, name := range []string{"a", "b", "c", "d", "A", "e"} {
		service := fmt.Sprint("s", i)
		in.Services = append(in.Services, inputs.Object[corev1.Service]{
			Ref: diag.Object{Kind: "Service", Namespace: "evil", Name: service},
			Value: &corev1.Service{
				ObjectMeta: metav1.ObjectMeta{Namespace: "evil", Name: service},
				Spec:       corev1.ServiceSpec{Type: corev1.ServiceTypeExternalName, ExternalName: name + ".example"},
			},
		})
		backend := networkingv1.IngressBackend{Service: &networkingv1.IngressServiceBackend{Name: service, Port: networkingv1.ServiceBackendPort{Number: 80}}}
		ing := &networkingv1.Ingress{ObjectMeta: metav1.ObjectMeta{Namespace: "evil", Name: "i-" + name, CreationTimestamp: metav1.NewTime(time.Unix(2_000_000_000+int64(i), 0))}}
		ing.Spec.IngressClassName = &class
		ing.Spec.Rules = []networkingv1.IngressRule{{Host: fmt.Sprintf("h%d.evil.example", i), IngressRuleValue: networkingv1.IngressRuleValue{
			HTTP: &networkingv1.HTTPIngressRuleValue{Paths: []networkingv1.HTTPIngressPath{{Path: "/", PathType: &prefix, Backend: backend}}},
		}}}
		in.Ingresses = append(in.Ingresses, inputs.Object[networkingv1.Ingress]{Ref: diag.Object{Kind: "Ingress", Namespace: "evil", Name: "i-" + name}, Value: ing})
	}
	for most, want := range map[int]string{0: "", 5: "", 3: "i-d i-e", 1: "i-b i-c i-d i-e"} {
		r, _ := published(t, in, func(c *config.Config) { c.Limits.NamespaceExternalNames = most })
		var left []string
		for _, q := range r.Draft.Quarantined {
			left = append(left, q.Name)
			if q.Namespace != "evil" || !strings.Contains(q.Reason, fmt.Sprintf("and may lead to %d", most)) {
				t.Errorf("%d names: left out is %s/%s: %s", most, q.Namespace, q.Name, q.Reason)
			}
		}
		slices.Sort(left)
		if got := strings.Join(left, " "); got != want {
			t.Errorf("%d names: left out are %q, want %q", most, got, want)
		}
	}
}
