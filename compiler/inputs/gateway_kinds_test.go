package inputs

import (
	"bytes"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"

	"github.com/hapsnap/hapsnap/compiler/diag"
	"github.com/hapsnap/hapsnap/internal/testing/kubetest"
)

// The table of kinds agrees with the CustomResourceDefinitions of the standard channel: names, scope, version
// and status.
func TestGatewayKindsAreThoseOfTheirDefinitions(t *testing.T) {
	t.Parallel()
	type version struct {
		Name         string
		Served       bool
		Subresources map[string]any
	}
	found := map[string]bool{}
	for _, kind := range GatewayKinds() {
		text, err := os.ReadFile(filepath.Join(kubetest.GatewayAPI(t), gatewayGroup+"_"+kind.Resource+".yaml"))
		if err != nil {
			t.Fatal(err)
		}
		for document := range bytes.SplitSeq(text, []byte("\n---\n")) {
			var d struct {
				Metadata metav1.ObjectMeta
				Spec     struct {
					Scope    string
					Names    struct{ Kind, Plural string }
					Versions []version
				}
			}
			if err := yaml.Unmarshal(document, &d); err != nil || d.Spec.Names.Kind == "" {
				continue
			}
			found[d.Spec.Names.Kind] = true
			if d.Metadata.Name != kind.Definition() || d.Spec.Names.Kind != kind.Name || (d.Spec.Scope == "Cluster") != kind.EveryNamespace {
				t.Errorf("%s: the definition is %s of %s, in %s", kind.Name, d.Metadata.Name, d.Spec.Names.Kind, d.Spec.Scope)
			}
			if channel := d.Metadata.Annotations["gateway.networking.k8s.io/channel"]; channel != "standard" {
				t.Errorf("%s is of the channel %s", kind.Name, channel)
			}
			i := slices.IndexFunc(d.Spec.Versions, func(v version) bool { return strings.HasSuffix(GatewayVersion, "/"+v.Name) && v.Served })
			if i < 0 {
				t.Errorf("%s is not served as %s", kind.Name, GatewayVersion)
			} else if _, has := d.Spec.Versions[i].Subresources["status"]; has != kind.Status {
				t.Errorf("%s has a status: %v", kind.Name, has)
			}
		}
	}
	if len(found) != len(GatewayKinds()) {
		t.Errorf("definitions of %v", found)
	}
}

// Each kind of the table has a list of its own, which is filled, listed, counted and left out.
func TestGatewayKindsHaveListsOfTheirOwn(t *testing.T) {
	t.Parallel()
	var in GatewayAPI
	for i, kind := range GatewayKinds() {
		o := kind.New()
		o.SetName("a")
		in.Add(o)
		if in.Count() != i+1 || !WithoutStatus(o) {
			t.Errorf("%s: there are %d objects", kind.Name, in.Count())
		}
	}
	var listed []string
	for kind, o := range in.Each() {
		listed = append(listed, kind.Name)
		if o.Ref.Kind != kind.Name || o.Value.GetName() != "a" || o.Ref.APIVersion != "" {
			t.Errorf("%s: %+v", kind.Name, o.Ref)
		}
		if left := in.without(map[diag.Object]bool{o.Ref: true}); left.Count() != in.Count()-1 {
			t.Errorf("%s is not left out", kind.Name)
		}
	}
	if len(listed) != len(GatewayKinds()) {
		t.Errorf("listed %v", listed)
	}
}
