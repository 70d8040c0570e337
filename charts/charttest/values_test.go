package charttest

import (
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"sigs.k8s.io/kustomize/kyaml/yaml"
)

var update = flag.Bool("update", false, "rewrite VALUES.md")

// VALUES.md is made of values.yaml and its comments.
func TestValuesAreDocumented(t *testing.T) {
	t.Parallel()
	const path = "../hapsnap/VALUES.md"
	var b strings.Builder
	b.WriteString("# Values\n\n<!-- Generated from values.yaml: change it there, and run\n     go test ./charts/charttest -run Documented -update -->\n\n| value | default | what it is |\n|---|---|---|\n")
	document(t, &b, "", valuesNode(t))
	if *update {
		if err := os.WriteFile(path, []byte(b.String()), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	got, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(b.String(), string(got)); diff != "" {
		t.Errorf("run with -update:\n%s", diff)
	}
}

func valuesNode(t *testing.T) *yaml.Node {
	t.Helper()
	text, err := os.ReadFile("../hapsnap/values.yaml")
	if err != nil {
		t.Fatal(err)
	}
	root, err := yaml.Parse(string(text))
	if err != nil {
		t.Fatal(err)
	}
	return root.YNode()
}

// document writes a line for each value below a node.
func document(t *testing.T, b *strings.Builder, path string, node *yaml.Node) {
	t.Helper()
	for i := 0; i+1 < len(node.Content); i += 2 {
		key, value := node.Content[i], node.Content[i+1]
		name := strings.TrimPrefix(path+"."+key.Value, ".")
		comment := strings.Join(strings.Fields(strings.ReplaceAll(lastParagraph(key.HeadComment), "#", "")), " ")
		if value.Kind == yaml.MappingNode && len(value.Content) > 0 && value.Style&yaml.FlowStyle == 0 {
			fmt.Fprintf(b, "| `%s` | | %s |\n", name, comment)
			document(t, b, name, value)
			continue
		}
		fmt.Fprintf(b, "| `%s` | `%s` | %s |\n", name, inline(t, value), comment)
	}
}

// lastParagraph leaves out what stands before a blank line: it is about the file.
func lastParagraph(comment string) string {
	parts := strings.Split(comment, "\n\n")
	return parts[len(parts)-1]
}

func inline(t *testing.T, node *yaml.Node) string {
	t.Helper()
	var value any
	if err := node.Decode(&value); err != nil {
		t.Fatal(err)
	}
	text, err := json.Marshal(value)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// free are the values that hold whatever Kubernetes, or the programs' own files, have there.
var free = []string{
	"global", "resources", "annotations", "labels", "nodeSelector", "affinity", "config", "rollout", "pods", "namespaceSelector", "issuerRef",
	"behavior", "updateStrategy", "countriesVolume", "podAnnotations", "podLabels", "commonLabels", "commonAnnotations", "alertLabels", "minAllowed", "maxAllowed",
}

// schema is what this test reads of a JSON schema.
type schema struct {
	AdditionalProperties *bool             `json:"additionalProperties"`
	Properties           map[string]schema `json:"properties"`
}

// The schema knows the values that there are, and no others, at every depth.
func TestSchemaIsStrict(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile("../hapsnap/values.schema.json")
	if err != nil {
		t.Fatal(err)
	}
	var s schema
	if err := json.Unmarshal(text, &s); err != nil {
		t.Fatal(err)
	}
	checkSchema(t, "values", valuesNode(t), s)
}

func checkSchema(t *testing.T, path string, node *yaml.Node, s schema) {
	t.Helper()
	if s.AdditionalProperties == nil || *s.AdditionalProperties {
		t.Errorf("%s: the schema takes any name", path)
	}
	var names []string
	for i := 0; i+1 < len(node.Content); i += 2 {
		name, value := node.Content[i].Value, node.Content[i+1]
		names = append(names, name)
		sub, ok := s.Properties[name]
		if !ok {
			t.Errorf("%s.%s is not in the schema", path, name)
		}
		if value.Kind == yaml.MappingNode && !slices.Contains(free, name) {
			checkSchema(t, path+"."+name, value, sub)
		}
	}
	for name := range s.Properties {
		if !slices.Contains(names, name) {
			t.Errorf("%s.%s is in the schema, and not in values.yaml", path, name)
		}
	}
}
