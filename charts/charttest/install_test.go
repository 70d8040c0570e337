package charttest

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// Both Helms install, upgrade and uninstall a release in a cluster. Its store stays with its snapshots, and the
// release can be installed again.
func TestHelmInstalls(t *testing.T) {
	t.Parallel()
	server := cluster.Server(t)
	for _, program := range []string{"helm", "helm3"} {
		t.Run(program, func(t *testing.T) {
			t.Parallel()
			namespace := "installed-by-" + program
			class := "class-" + program
			store := fmt.Sprintf("%s-%s-hapsnap-store", namespace, Release)
			server.Apply(t, fmt.Sprintf("{apiVersion: v1, kind: Namespace, metadata: {name: %s}}", namespace))
			run := func(verb string, args ...string) {
				t.Helper()
				if _, err := Helm(t, program, slices.Concat([]string{verb, Release}, args, []string{"--namespace", namespace, "--kubeconfig", server.Kubeconfig()})...); err != nil {
					t.Fatal(err)
				}
			}
			values := []string{Chart(t), "--set", "haproxy.dataplane.existingSecret=dataplane,haproxy.dataplane.tls.existingSecret=tls,ingressClass.name=" + class}
			there := func(o client.Object, namespace, name string) bool {
				t.Helper()
				err := server.Client().Get(t.Context(), client.ObjectKey{Namespace: namespace, Name: name}, o)
				if client.IgnoreNotFound(err) != nil {
					t.Fatal(err)
				}
				return err == nil && o.GetDeletionTimestamp() == nil
			}
			run("install", values...)
			server.Apply(t, fmt.Sprintf("{apiVersion: v1, kind: ConfigMap, metadata: {name: snapshot, namespace: %s}}", store))
			run("upgrade", append(values, "--set", "compiler.config.maxconn=5000")...)
			config := &corev1.ConfigMap{}
			if !there(config, namespace, Release+"-hapsnap-compiler") || !strings.Contains(config.Data["config.yaml"], "maxconn: 5000") {
				t.Errorf("the upgrade did not change the configuration:\n%s", config.Data["config.yaml"])
			}
			run("uninstall")
			if there(&corev1.Service{}, namespace, Release+"-hapsnap-haproxy") || there(&networkingv1.IngressClass{}, "", class) {
				t.Error("something of the release is left")
			}
			if !there(&corev1.Namespace{}, "", store) || !there(&corev1.ConfigMap{}, store, "snapshot") {
				t.Error("the snapshots went with the release")
			}
			run("install", values...)
		})
	}
}
