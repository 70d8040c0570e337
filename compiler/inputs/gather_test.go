package inputs_test

import (
	"encoding/json"
	"flag"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/tools/txtar"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/hapsnap/hapsnap/compiler/config"
	"github.com/hapsnap/hapsnap/compiler/config/kinds"
	"github.com/hapsnap/hapsnap/compiler/diag"
	"github.com/hapsnap/hapsnap/compiler/inputs"
	"github.com/hapsnap/hapsnap/internal/manifests"
)

var update = flag.Bool("update", false, "rewrite the golden files")

// gather reads the files of an archive. Positions are relative to its directory.
func gather(t *testing.T, files []txtar.File, kinds ...kinds.Kind) (inputs.Inputs, []diag.Diagnostic, map[manifests.GVK]int) {
	t.Helper()
	dir := t.TempDir()
	t.Chdir(dir)
	for _, f := range files {
		if err := os.MkdirAll(filepath.Dir(f.Name), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(f.Name, f.Data, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	set, err := manifests.Read(".")
	if err != nil {
		t.Fatal(err)
	}
	return inputs.Gather(set, kinds...)
}

func TestGatherGolden(t *testing.T) {
	files, err := filepath.Glob("testdata/*.txtar")
	if err != nil || len(files) == 0 {
		t.Fatal(files, err)
	}
	for _, file := range files {
		t.Run(filepath.Base(file), func(t *testing.T) { testGolden(t, file) })
	}
}

// testGolden gathers the objects of an archive. With a file config.yaml, it selects those that the
// configuration reads.
func testGolden(t *testing.T, file string) {
	t.Helper()
	goldens, err := filepath.Abs(file)
	if err != nil {
		t.Fatal(err)
	}
	golden, err := txtar.ParseFile(goldens)
	if err != nil {
		t.Fatal(err)
	}
	isWant := func(f txtar.File) bool { return f.Name == "want" }
	var want string
	if i := slices.IndexFunc(golden.Files, isWant); i >= 0 {
		want = string(golden.Files[i].Data)
	}
	golden.Files = slices.DeleteFunc(golden.Files, isWant)
	cfg := config.Default()
	manifests := slices.Clone(golden.Files)
	if i := slices.IndexFunc(manifests, func(f txtar.File) bool { return f.Name == "config.yaml" }); i >= 0 {
		var wrong []diag.Diagnostic
		if cfg, wrong = config.Parse("config.yaml", manifests[i].Data); len(wrong) > 0 {
			t.Fatal(wrong)
		}
		manifests = slices.Delete(manifests, i, i+1)
	}
	in, found, ignored := gather(t, manifests, cfg.Kinds...)
	selector := inputs.NewSelector(cfg, in.Namespaces)
	got := describe(selector.Objects(in), selector.Diagnostics(found, in), ignored)
	if *update {
		golden.Files = append(golden.Files, txtar.File{Name: "want", Data: []byte(got)})
		if err := os.WriteFile(goldens, txtar.Format(golden), 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got)\n%s", diff)
	}
}

func describe(in inputs.Inputs, found []diag.Diagnostic, ignored map[manifests.GVK]int) string {
	var b strings.Builder
	for _, o := range in.Provenance() {
		fmt.Fprintf(&b, "%s %s %s/%s uid=%s rv=%s\n", o.APIVersion, o.Kind, o.Namespace, o.Name, o.UID, o.ResourceVersion)
	}
	for _, s := range in.Secrets {
		for _, key := range slices.Sorted(maps.Keys(s.Value.Data)) {
			fmt.Fprintf(&b, "%s: %s has %d bytes\n", s.Ref, key, len(s.Value.Data[key]))
		}
	}
	fmt.Fprintf(&b, "%d EndpointSlices\n", len(in.EndpointSlices))
	for _, o := range in.Others {
		content, err := json.Marshal(o.Value.Object)
		if err != nil {
			panic(err)
		}
		fmt.Fprintf(&b, "%s: %s %s\n", o.Position(), o.Ref, content)
	}
	for _, g := range slices.SortedFunc(maps.Keys(ignored), manifests.GVK.Compare) {
		fmt.Fprintf(&b, "ignored: %d of %s\n", ignored[g], g)
	}
	for _, d := range found {
		b.WriteString(d.String() + "\n")
	}
	return b.String()
}

func TestWithout(t *testing.T) {
	in, found, _ := gather(t, []txtar.File{{Name: "a.yaml", Data: []byte(`
apiVersion: v1
kind: List
items:
- {apiVersion: v1, kind: Service, metadata: {name: a}}
- {apiVersion: v1, kind: Service, metadata: {name: b}}
- {apiVersion: v1, kind: Secret, metadata: {name: a}}
`)}})
	if len(found) > 0 {
		t.Fatal(found)
	}
	out := in.Without(diag.Object{Kind: "Service", Namespace: "default", Name: "a"})
	if len(out.Services) != 1 || out.Services[0].Ref.Name != "b" || len(out.Secrets) != 1 {
		t.Errorf("left %v and %v", out.Services, out.Secrets)
	}
	if len(in.Services) != 2 || in.Services[0].Ref.Name != "a" {
		t.Errorf("Without changed its receiver: %v", in.Services)
	}
}

func TestPositionOfClusterObject(t *testing.T) {
	var o inputs.Object[int]
	if p, want := o.Position("spec", "rules", 0, "host"), (diag.Position{Field: "spec.rules[0].host"}); p != want {
		t.Errorf("got %v, want %v", p, want)
	}
	if p := o.Position(); p != (diag.Position{}) {
		t.Errorf("the whole object is at %v, want nowhere", p)
	}
}

// A second Gather uses what was decoded before in the same place, and forgets what is gone. An object that
// moved is decoded anew, since others remember its positions.
func TestGathererDecodesOnlyWhatChanged(t *testing.T) {
	dir := t.TempDir()
	t.Chdir(dir)
	var reader manifests.Reader
	var gatherer inputs.Gatherer
	gatherFile := func(text string) inputs.Inputs {
		t.Helper()
		if err := os.WriteFile("a.yaml", []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
		set, err := reader.Read(".")
		if err != nil {
			t.Fatal(err)
		}
		in, found, _ := gatherer.Gather(set)
		if len(found) > 0 {
			t.Fatal(found)
		}
		return in
	}
	const a, b = "---\napiVersion: v1\nkind: Secret\nmetadata: {name: a}\nstringData: {x: why}\n", "---\napiVersion: v1\nkind: Service\nmetadata: {name: b}\n"
	first := gatherFile(a + b)
	second := gatherFile(a + b + "spec: {type: ClusterIP}\n")
	if second.Secrets[0].Value != first.Secrets[0].Value || string(second.Secrets[0].Value.Data["x"]) != "why" {
		t.Error("the Secret was decoded again")
	}
	if second.Services[0].Value == first.Services[0].Value || second.Services[0].Value.Spec.Type == "" {
		t.Error("the Service is the old one")
	}
	if at := second.Services[0].Position("metadata", "name").String(); at != "a.yaml:9:18" {
		t.Errorf("the Service's name is at %s", at)
	}
	moved := gatherFile("# a new line\n" + a + b)
	if at := moved.Secrets[0].Position("metadata", "name").String(); at != "a.yaml:5:18" || moved.Secrets[0].Value == first.Secrets[0].Value {
		t.Errorf("the Secret that moved is at %s, with the value that it had", at)
	}
	third := gatherFile(b)
	if len(third.Secrets) != 0 || third.Services[0].Value == first.Services[0].Value {
		t.Error("what was gone is still known")
	}
}

// Kinds with the same name are distinguished. An object that is left out is also left out of the content.
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

// An object of a cluster is named like one of a file.
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

// Decoded content is used again until other fields must be dropped.
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
