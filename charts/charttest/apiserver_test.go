package charttest

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/hapsnap/hapsnap/internal/testing/kubetest"
)

// foreign are kinds of other projects, of which the chart has objects.
var foreign = []struct{ group, kind string }{
	{"monitoring.coreos.com", "ServiceMonitor"}, {"monitoring.coreos.com", "PodMonitor"}, {"monitoring.coreos.com", "PrometheusRule"},
	{"cert-manager.io", "Issuer"}, {"cert-manager.io", "Certificate"}, {"autoscaling.k8s.io", "VerticalPodAutoscaler"},
}

// The API server accepts every object, and knows all of its fields. Pod Security "restricted" accepts every
// pod, except for ports and the network of nodes.
func TestAPIServerTakesEverything(t *testing.T) {
	t.Parallel()
	server := cluster.Server(t)
	for _, f := range foreign {
		server.Apply(t, stub(f.group, f.kind))
	}
	gatewayClasses, err := os.ReadFile(filepath.Join(kubetest.GatewayAPI(t), "gateway.networking.k8s.io_gatewayclasses.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	server.Apply(t, string(gatewayClasses))
	server.Apply(t, "{apiVersion: scheduling.k8s.io/v1, kind: PriorityClass, metadata: {name: edge}, value: 1000}")
	for _, v := range all(t) {
		t.Run(v.name, func(t *testing.T) {
			t.Parallel()
			onNodes := strings.Contains(v.name, "host-")
			level := "restricted"
			if onNodes {
				level = "privileged"
			}
			var said warnings
			c := strict(t, server, &said)
			for _, namespace := range namespacesOf(v.objects(t)) {
				server.Apply(t, fmt.Sprintf("{apiVersion: v1, kind: Namespace, metadata: {name: %s, labels: {pod-security.kubernetes.io/enforce: %s, pod-security.kubernetes.io/warn: restricted}}}", namespace, level))
			}
			pods := 0
			for _, o := range v.objects(t) {
				if err := c.Apply(t.Context(), client.ApplyConfigurationFromUnstructured(o.DeepCopy()), client.DryRunAll, client.FieldOwner("chart"), client.ForceOwnership); err != nil {
					t.Errorf("%s %s: %v", o.GetKind(), o.GetName(), err)
				}
				if pod, ok := podOf(o); ok {
					pods++
					if err := c.Create(t.Context(), &pod, client.DryRunAll); err != nil {
						t.Errorf("pod of %s %s: %v", o.GetKind(), o.GetName(), err)
					}
				}
			}
			if pods == 0 {
				t.Error("no pods")
			}
			for _, warning := range said.all() {
				if onNodes && (strings.Contains(warning, "host namespaces") || strings.Contains(warning, "hostPort")) && !strings.Contains(warning, "allowPrivilegeEscalation") && !strings.Contains(warning, "runAsNonRoot") && !strings.Contains(warning, "unrestricted capabilities") {
					continue
				}
				t.Errorf("warning: %s", warning)
			}
		})
	}
}

// The same server refuses an unrestricted pod, so the test above can fail.
func TestAPIServerRefuses(t *testing.T) {
	t.Parallel()
	server := cluster.Server(t)
	server.Apply(t, "{apiVersion: v1, kind: Namespace, metadata: {name: refuses, labels: {pod-security.kubernetes.io/enforce: restricted}}}")
	c := strict(t, server, &warnings{})
	fleet, _ := named(t, "minimal").component(t, "Deployment", "haproxy")
	for name, spoil := range map[string]func(map[string]any){
		"root":          func(spec map[string]any) { spec["securityContext"] = map[string]any{} },
		"unknown field": func(spec map[string]any) { spec["terminationGracePeriod"] = int64(1) },
	} {
		pod, _ := podOf(fleet)
		pod.SetNamespace("refuses")
		spoil(pod.Object["spec"].(map[string]any))
		if err := c.Create(t.Context(), &pod, client.DryRunAll); err == nil {
			t.Errorf("%s: taken", name)
		}
	}
}

// strict returns a client for which unknown fields are errors.
func strict(t *testing.T, server *kubetest.Server, said *warnings) client.Client {
	t.Helper()
	config := server.Config()
	config.WarningHandlerWithContext = said
	c, err := client.New(config, client.Options{})
	if err != nil {
		t.Fatal(err)
	}
	return client.WithFieldValidation(c, metav1.FieldValidationStrict)
}

// warnings are the warnings of an API server.
type warnings struct {
	mu   sync.Mutex
	text []string
}

var _ rest.WarningHandlerWithContext = (*warnings)(nil)

func (w *warnings) HandleWarningHeaderWithContext(_ context.Context, _ int, _ string, text string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.text = append(w.text, text)
}

func (w *warnings) all() []string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return slices.Clone(w.text)
}

// podOf returns the pod that a controller makes from an object's template.
func podOf(o unstructured.Unstructured) (unstructured.Unstructured, bool) {
	path := []string{"spec", "template"}
	if o.GetKind() == "CronJob" {
		path = []string{"spec", "jobTemplate", "spec", "template"}
	}
	template, found, _ := unstructured.NestedMap(o.Object, path...)
	if !found || template["spec"] == nil {
		return unstructured.Unstructured{}, false
	}
	pod := unstructured.Unstructured{Object: map[string]any{"apiVersion": "v1", "kind": "Pod", "metadata": template["metadata"], "spec": template["spec"]}}
	pod.SetName("pod")
	pod.SetNamespace(o.GetNamespace())
	return pod, true
}

func namespacesOf(objects []unstructured.Unstructured) []string {
	var out []string
	for _, o := range objects {
		switch {
		case o.GetKind() == "Namespace":
			out = append(out, o.GetName())
		case o.GetNamespace() != "" && o.GetNamespace() != metav1.NamespaceDefault:
			out = append(out, o.GetNamespace())
		}
	}
	slices.Sort(out)
	return slices.Compact(out)
}

// stub is a CustomResourceDefinition that accepts any object of a kind.
func stub(group, kind string) string {
	plural := strings.ToLower(kind) + "s"
	return fmt.Sprintf(`{apiVersion: apiextensions.k8s.io/v1, kind: CustomResourceDefinition, metadata: {name: %[1]s.%[2]s, annotations: {api-approved.kubernetes.io: unapproved}},
spec: {group: %[2]s, scope: Namespaced, names: {plural: %[1]s, kind: %[3]s}, versions: [{name: v1, served: true, storage: true,
schema: {openAPIV3Schema: {type: object, x-kubernetes-preserve-unknown-fields: true}}}]}}`, plural, group, kind)
}
