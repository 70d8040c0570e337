package inputs_test

import (
	"os"
	"testing"

	"golang.org/x/tools/txtar"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/hapsnap/hapsnap/compiler/config/kinds"
	"github.com/hapsnap/hapsnap/compiler/diag"
	"github.com/hapsnap/hapsnap/compiler/inputs"
	"github.com/hapsnap/hapsnap/internal/manifests"
)

// Kinds of one name are told apart, and an object that is left out is gone as
// itself and as content.
func TestWithoutOthers(t *testing.T) {
	in, found, _ := gather(t, []txtar.File{{Name: "a.yaml", Data: []byte(`
apiVersion: v1
kind: List
items:
- {apiVersion: v1, kind: Service, metadata: {name: a}}
- {apiVersion: knative.example/v1, kind: Service, metadata: {name: a, namespace: default}}
- {apiVersion: v1, kind: ConfigMap, metadata: {name: a}}
`)}}, kinds.Kind{APIVersion: "knative.example/v1", Kind: "Service"}, kinds.Kind{APIVersion: "v1", Kind: "ConfigMap"})
	if len(found) > 0 || len(in.Others) != 2 {
		t.Fatal(found, in.Others)
	}
	if out := in.Without(diag.Object{Kind: "Service", Namespace: "default", Name: "a"}); len(out.Services) != 0 || len(out.Others) != 2 {
		t.Errorf("without the Service there are %v and %v", out.Services, out.Others)
	}
	knative := diag.Object{APIVersion: "knative.example/v1", Kind: "Service", Namespace: "default", Name: "a"}
	if out := in.Without(knative); len(out.Services) != 1 || len(out.Others) != 1 {
		t.Errorf("without the other Service there are %v and %v", out.Services, out.Others)
	}
	if out := in.Without(diag.Object{Kind: "ConfigMap", Namespace: "default", Name: "a"}); len(out.ConfigMaps) != 0 || len(out.Others) != 1 {
		t.Errorf("without the ConfigMap there are %v and %v", out.ConfigMaps, out.Others)
	}
}

// An object of a cluster is named as one of a file.
func TestOtherOfACluster(t *testing.T) {
	t.Parallel()
	for kind, want := range map[string]diag.Object{
		"v1/ConfigMap":          {Kind: "ConfigMap", Namespace: "shop", Name: "a"},
		"example.com/v1/Widget": {APIVersion: "example.com/v1", Kind: "Widget", Namespace: "shop", Name: "a"},
	} {
		u := &unstructured.Unstructured{Object: map[string]any{}}
		u.SetAPIVersion(kind[:len(kind)-len(want.Kind)-1])
		u.SetKind(want.Kind)
		u.SetNamespace("shop")
		u.SetName("a")
		o := inputs.Other(u)
		if o.Ref != want {
			t.Errorf("got %#v, want %#v", o.Ref, want)
		}
		if at := o.Position("spec", "hosts", 1).String(); at != "spec.hosts[1]" {
			t.Errorf("a field is at %q", at)
		}
	}
}

// What was decoded is used again, until other fields are to be dropped.
func TestGathererKeepsContent(t *testing.T) {
	dir := t.TempDir()
	t.Chdir(dir)
	if err := os.WriteFile("a.yaml", []byte("apiVersion: v1\nkind: ConfigMap\nmetadata: {name: a}\ndata: {b: c}\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	var reader manifests.Reader
	var gatherer inputs.Gatherer
	gathered := func(kinds ...kinds.Kind) inputs.Inputs {
		t.Helper()
		set, err := reader.Read(".")
		if err != nil {
			t.Fatal(err)
		}
		in, found, _ := gatherer.Gather(set, kinds...)
		if len(found) > 0 || len(in.Others) != 1 || len(in.ConfigMaps) != 1 {
			t.Fatal(found, in)
		}
		return in
	}
	kind := kinds.Kind{APIVersion: "v1", Kind: "ConfigMap"}
	first, second := gathered(kind), gathered(kind)
	if first.Others[0].Value != second.Others[0].Value || first.ConfigMaps[0].Value != second.ConfigMaps[0].Value {
		t.Error("the ConfigMap was decoded again")
	}
	kind.Drop = []string{"data.b"}
	if third := gathered(kind).Others[0].Value.Object["data"].(map[string]any); len(third) > 0 {
		t.Errorf("a field was kept: %v", third)
	}
}
