package charttest

import (
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

// hapsnap finds the store and the state of the programs, in a namespace where the chart's roles for people
// allow reading.
func TestClientFindsTheStore(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		args             []string
		namespace, store string
	}{
		"in the cluster": {nil, "edge-edge-hapsnap-store", "configmap:edge-edge-hapsnap-store/edge-hapsnap"},
		"in git":         {[]string{"--set", "store.url=git+https://me@git.example/edge.git?branch=edge"}, "edge", "git+https://me@git.example/edge.git?branch=edge"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			text, err := Template(t, "helm", "edge", append(c.args, "--set", "haproxy.dataplane.existingSecret=dataplane,certManager.enabled=true,certManager.issuerRef.name=ca")...)
			if err != nil {
				t.Fatal(err)
			}
			client := Find(t, Objects(t, text), "ConfigMap", "edge-hapsnap-client")
			data, _, err := unstructured.NestedStringMap(client.Object, "data")
			if err != nil {
				t.Fatal(err)
			}
			if client.GetLabels()["hapsnap.dev/client"] == "" || client.GetNamespace() != c.namespace {
				t.Errorf("ConfigMap %s/%s has the labels %v", client.GetNamespace(), client.GetName(), client.GetLabels())
			}
			if data["store"] != c.store || data["state"] != "secret:edge/edge-hapsnap-pusher" || data["namespace"] != "edge" {
				t.Errorf("it says %v", data)
			}
		})
	}
}
