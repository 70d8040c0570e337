package charttest

import (
	"bytes"
	"encoding/json"
	"os"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

const (
	valuesSchema = "../hapsnap/values.schema.json"
	// definitionsAt begins the part of the schema that comes from the schemas of files.
	definitionsAt = ",\n  \"definitions\": "
)

// publishedSpec returns the spec of a file from its published schema.
func publishedSpec(t *testing.T, name string) map[string]any {
	t.Helper()
	text, err := os.ReadFile("../../schemas/" + name + ".json")
	if err != nil {
		t.Fatal(err)
	}
	var s struct {
		Properties struct {
			Spec map[string]any `json:"spec"`
		} `json:"properties"`
	}
	if err := json.Unmarshal(text, &s); err != nil {
		t.Fatal(err)
	}
	return s.Properties.Spec
}

// Values that are parts of a CompilerConfig or a Fleet have their schemas. After a change of
// docs/reference/schemas, run make generate.
func TestSchemaOfFilesIsFresh(t *testing.T) {
	t.Parallel()
	fleet := publishedSpec(t, "fleet")["properties"].(map[string]any)
	instances := fleet["instances"].(map[string]any)
	definitions := map[string]any{
		"compilerConfig": publishedSpec(t, "compilerconfig"), "fleetRollout": fleet["rollout"], "fleetPods": fleet["pods"], "fleetInstance": instances["items"],
	}
	var want bytes.Buffer
	encoder := json.NewEncoder(&want)
	encoder.SetEscapeHTML(false)
	if err := encoder.Encode(definitions); err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(valuesSchema)
	if err != nil {
		t.Fatal(err)
	}
	own, _, _ := strings.Cut(string(text), definitionsAt)
	own = strings.TrimSuffix(strings.TrimSpace(own), "\n}")
	whole := own + definitionsAt + strings.TrimSpace(want.String()) + "\n}\n"
	if *update {
		if err := os.WriteFile(valuesSchema, []byte(whole), 0o600); err != nil {
			t.Fatal(err)
		}
		return
	}
	if diff := cmp.Diff(whole, string(text)); diff != "" {
		t.Errorf("run make generate:\n%s", diff)
	}
}

// Helm refuses what the programs would refuse. It accepts global and enabled, as for a chart within another
// one.
func TestValuesOfFilesAreChecked(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct{ values, want string }{
		"what is right":        {"global: {anything: 1}\nenabled: true\ncompiler: {config: {maxconn: 100, countries: {header: X-C, configMaps: [a/b]}}}\nfleet: {rollout: {waves: ['1', '100%'], soak: 30s}}\n", ""},
		"an unknown field":     {"compiler: {config: {maxcon: 100}}\n", "maxcon"},
		"a wrong type":         {"compiler: {config: {http: {port: eighty}}}\n", "port"},
		"no such value":        {"compiler: {config: {hosts: mine}}\n", "hosts"},
		"of the fleet":         {"fleet: {rollout: {wave: ['1']}}\n", "wave"},
		"a type of the fleet":  {"fleet: {rollout: {waves: '1'}}\n", "waves"},
		"of an instance":       {"fleet: {instances: [{name: a, nonsense: http://a}]}\n", "nonsense"},
		"of pods of the fleet": {"fleet: {pods: {selectors: {}}}\n", "selectors"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			file := t.TempDir() + "/values.yaml"
			if err := os.WriteFile(file, []byte(c.values), 0o600); err != nil {
				t.Fatal(err)
			}
			_, err := Template(t, "helm", "edge", "--values", file, "--values", "../hapsnap/ci/minimal-values.yaml")
			if c.want == "" && err != nil || c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want) || !strings.Contains(err.Error(), "the specifications of the schema")) {
				t.Error(err)
			}
		})
	}
}

// A VerticalPodAutoscaler names an existing Deployment, and one of its containers.
func TestVerticalPodAutoscalers(t *testing.T) {
	t.Parallel()
	text, err := Template(t, "helm", "edge", "--values", "../hapsnap/ci/minimal-values.yaml", "--set", "compiler.vpa.enabled=true,pusher.vpa.enabled=true")
	if err != nil {
		t.Fatal(err)
	}
	containers, found := map[string]string{}, 0
	objects := Objects(t, text)
	for _, o := range objects {
		if list, ok, _ := unstructured.NestedSlice(o.Object, "spec", "template", "spec", "containers"); ok && o.GetKind() == "Deployment" {
			containers[o.GetName()] = list[0].(map[string]any)["name"].(string)
		}
	}
	for _, o := range objects {
		if o.GetKind() != "VerticalPodAutoscaler" {
			continue
		}
		found++
		target, _, _ := unstructured.NestedString(o.Object, "spec", "targetRef", "name")
		mode, _, _ := unstructured.NestedString(o.Object, "spec", "updatePolicy", "updateMode")
		policies, _, _ := unstructured.NestedSlice(o.Object, "spec", "resourcePolicy", "containerPolicies")
		if len(policies) != 1 || containers[target] == "" || policies[0].(map[string]any)["containerName"] != containers[target] || mode != "Off" {
			t.Errorf("%s: target %s, mode %s, %v", o.GetName(), target, mode, policies)
		}
	}
	if found != 2 {
		t.Errorf("%d of them", found)
	}
}
