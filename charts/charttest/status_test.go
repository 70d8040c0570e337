package charttest

import (
	"slices"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

// The pusher writes its status into a ConfigMap. People with the viewer's role may read it, and hapsnap finds
// it, also if the store is git. The pusher's role allows writing only that ConfigMap.
func TestStatusIsInAConfigMap(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		args             []string
		namespace, place string
	}{
		"in the cluster": {nil, "edge-edge-hapsnap-store", "edge-hapsnap-status"},
		"in git":         {[]string{"--set", "store.url=git+https://git.example/edge.git?branch=edge"}, "edge", "edge-hapsnap-status"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			text, err := Template(t, "helm", "edge", append(c.args, "--set", "haproxy.dataplane.existingSecret=dataplane,rbac.roles=true")...)
			if err != nil {
				t.Fatal(err)
			}
			objects := Objects(t, text)
			status, _, _ := unstructured.NestedString(Find(t, objects, "ConfigMap", "edge-hapsnap-client").Object, "data", "status")
			if want := "configmap:" + c.namespace + "/" + c.place; status != want {
				t.Errorf("the status is said to be in %s, not %s", status, want)
			}
			inGit := c.args != nil
			if strings.Contains(text, "--status=configmap:"+c.namespace+"/"+c.place) != inGit {
				t.Error("the pusher is told where the status goes if and only if that is not beside the store")
			}
			viewer := Find(t, objects, "Role", "edge-hapsnap-viewer")
			if viewer.GetNamespace() != c.namespace || strings.Contains(unstructuredText(viewer), "secrets") {
				t.Errorf("the viewer may: %s", unstructuredText(viewer))
			}
			concern := "store"
			if inGit {
				concern = "status"
				Find(t, objects, "ConfigMap", c.place) // the permission to create one cannot be limited to a name
			}
			if role := unstructuredText(Find(t, objects, "Role", "edge-hapsnap-pusher-"+concern)); !strings.Contains(role, c.place) || !strings.Contains(role, "patch") {
				t.Errorf("the pusher may: %s", role)
			}
		})
	}
}

// unstructuredText returns the rules of a role as text.
func unstructuredText(role unstructured.Unstructured) string {
	var words []string
	rules, _, _ := unstructured.NestedSlice(role.Object, "rules")
	for _, rule := range rules {
		fields, _ := rule.(map[string]any)
		for key := range fields {
			list, _, _ := unstructured.NestedStringSlice(fields, key)
			words = append(words, list...)
		}
	}
	slices.Sort(words)
	return strings.Join(words, " ")
}
