package charttest

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/yaml"

	"github.com/hapsnap/hapsnap/internal/testing/kubetest"
)

// The values in the ready files for Argo CD and Flux can be rendered. The Deployment whose replicas these tools
// ignore exists.
func TestReadyFiles(t *testing.T) {
	t.Parallel()
	for name, at := range map[string]struct{ values, ignored []string }{
		"argo-cd": {[]string{"spec", "source", "helm", "valuesObject"}, []string{"spec", "ignoreDifferences"}},
		"flux":    {[]string{"spec", "values"}, []string{"spec", "driftDetection", "ignore"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			text, err := os.ReadFile(filepath.Join(Root(t), "examples", name, "chart.yaml"))
			if err != nil {
				t.Fatal(err)
			}
			objects := Objects(t, string(text))
			o := objects[len(objects)-1].Object
			values, _, err := unstructured.NestedMap(o, at.values...)
			if err != nil || len(values) == 0 {
				t.Fatalf("no values: %v", err)
			}
			written, err := yaml.Marshal(values)
			if err != nil {
				t.Fatal(err)
			}
			file := filepath.Join(t.TempDir(), "values.yaml")
			if err := os.WriteFile(file, written, 0o600); err != nil {
				t.Fatal(err)
			}
			// The pusher follows what the ready files beside this one deliver, and may make the channel of that store.
			follows, err := Helm(t, "helm", "template", "hapsnap", Chart(t), "--namespace", "hapsnap", "--values", file)
			if err != nil {
				t.Fatal(err)
			}
			if !strings.Contains(follows, "--store=configmap:edge/shop") || !strings.Contains(follows, "hapsnap-pusher-create") || strings.Contains(follows, "hapsnap-store") {
				t.Error("the pusher follows another store than configmap:edge/shop")
			}
			// A release with a compiler has what these tools ignore of it.
			rendered, err := Helm(t, "helm", "template", "hapsnap", Chart(t), "--namespace", "hapsnap", "--values", file, "--set", "haproxy.autoscaling.enabled=true,compiler.enabled=true,compiler.webhook.enabled=true")
			if err != nil {
				t.Fatal(err)
			}
			there := Objects(t, rendered)
			rules, _, err := unstructured.NestedSlice(o, at.ignored...)
			if err != nil || len(rules) == 0 {
				t.Fatalf("nothing is ignored: %v", err)
			}
			for _, r := range rules {
				rule := r.(map[string]any)
				if target, ok := rule["target"].(map[string]any); ok {
					rule = target
				}
				if !slices.ContainsFunc(there, func(o unstructured.Unstructured) bool {
					return o.GetKind() == rule["kind"] && (rule["name"] == nil || regexp.MustCompile("^"+rule["name"].(string)+"$").MatchString(o.GetName()))
				}) {
					t.Errorf("%v is about nothing", rule)
				}
			}
		})
	}
}

// kustomize builds the folders of ready files, with every object of their files.
func TestReadyFilesBuild(t *testing.T) {
	t.Parallel()
	kustomize, err := kubetest.Binary("kustomize")
	if err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]int{"argo-cd": 2, "flux": 4} {
		out, err := exec.CommandContext(t.Context(), kustomize, "build", filepath.Join(Root(t), "examples", name)).CombinedOutput()
		if err != nil {
			t.Errorf("%s: %v\n%s", name, err, out)
			continue
		}
		if n := len(Objects(t, string(out))); n != want {
			t.Errorf("%s: %d objects, want %d", name, n, want)
		}
	}
}
