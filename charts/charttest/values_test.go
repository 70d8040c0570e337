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

// VALUES.md is generated from values.yaml and its comments.
func TestValuesDocumentIsFresh(t *testing.T) {
	t.Parallel()
	const path = "../hapsnap/VALUES.md"
	var b strings.Builder
	b.WriteString("# Values\n\n<!-- Generated from values.yaml. The target generate of the Makefile writes it anew. -->\n\n| value | default | what it is |\n|---|---|---|\n")
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
		t.Errorf("run make generate:\n%s", diff)
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

// lastParagraph removes what stands before a blank line: it is about the file.
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

// free are the values with content of Kubernetes, or of the programs' own files.
var free = []string{
	"global", "resources", "annotations", "labels", "nodeSelector", "affinity", "config", "rollout", "pods", "namespaceSelector", "issuerRef",
	"behavior", "updateStrategy", "values", "countriesVolume", "podAnnotations", "podLabels", "commonLabels", "commonAnnotations", "alertLabels", "minAllowed", "maxAllowed",
}

// schema is the part of a JSON schema that this test reads.
type schema struct {
	AdditionalProperties *bool             `json:"additionalProperties"`
	Properties           map[string]schema `json:"properties"`
	Required             []string          `json:"required"`
}

// The schema knows exactly the existing values, at every depth. It requires those that null would remove.
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
	var names, required []string
	for i := 0; i+1 < len(node.Content); i += 2 {
		name, value := node.Content[i].Value, node.Content[i+1]
		names = append(names, name)
		if !mayBeNull(name, value) && path+name != "valuesenabled" {
			required = append(required, name)
		}
		sub, ok := s.Properties[name]
		if !ok {
			t.Errorf("%s.%s is not in the schema", path, name)
		}
		if value.Kind == yaml.MappingNode && !slices.Contains(free, name) {
			checkSchema(t, path+"."+name, value, sub)
		}
	}
	if diff := cmp.Diff(required, s.Required); diff != "" {
		t.Errorf("%s: the schema requires other values than those that cannot be null:\n%s", path, diff)
	}
	for name := range s.Properties {
		if !slices.Contains(names, name) {
			t.Errorf("%s.%s is in the schema, and not in values.yaml", path, name)
		}
	}
}

// nullable are values for which null has a meaning: none, or that another one is set.
var nullable = []string{"registry", "nodePort", "maxUnavailable", "targetCPUUtilizationPercentage"}

// mayBeNull reports whether a value may be null. For other values null is refused, since templates could not
// distinguish it from false, 0 or an empty text.
func mayBeNull(name string, value *yaml.Node) bool {
	return isEmpty(value) || slices.Contains(nullable, name) || value.Kind == yaml.MappingNode && slices.Contains(free, name)
}

func isEmpty(value *yaml.Node) bool {
	return len(value.Content) == 0 && (value.Kind != yaml.ScalarNode || value.Value == "" || value.Tag == "!!null")
}

// If a group of values is null, the error names the missing value, whatever the templates would do. For empty
// values, null means the same as empty.
func TestNull(t *testing.T) {
	t.Parallel()
	var empty []string
	for i, top := 0, valuesNode(t); i+1 < len(top.Content); i += 2 {
		name, value := top.Content[i].Value, top.Content[i+1]
		empty = append(empty, empties(name, value)...)
		if value.Kind != yaml.MappingNode || mayBeNull(name, value) {
			continue
		}
		refusesNull(t, "", name)
		for j := 0; j+1 < len(value.Content); j += 2 {
			if sub := value.Content[j+1]; sub.Kind == yaml.MappingNode && !mayBeNull(value.Content[j].Value, sub) {
				refusesNull(t, name, value.Content[j].Value)
			}
		}
	}
	want, err := Template(t, "helm", "edge")
	if err != nil {
		t.Fatal(err)
	}
	got, err := Template(t, "helm", "edge", "--set", strings.Join(empty, "=null,")+"=null")
	if diff := cmp.Diff(want, got); err != nil || diff != "" || len(empty) < 100 {
		t.Errorf("null for each of %d values: %v\n%s", len(empty), err, diff)
	}
}

// refusesNull fails if Helm renders a group of values as null, or if the error does not name it plainly.
func refusesNull(t *testing.T, parent, name string) {
	t.Helper()
	t.Run(strings.TrimPrefix(parent+"."+name, "."), func(t *testing.T) {
		t.Parallel()
		_, err := Template(t, "helm", "edge", "--set", strings.TrimPrefix(parent+"."+name, ".")+"=null")
		want := fmt.Sprintf("- at '%s': missing property '%s'", strings.TrimSuffix("/"+parent, "/"), name)
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("got %v, want %q", err, want)
		}
	})
}

// empties are the paths of the empty values below a node, except one with a meaning of null.
func empties(path string, node *yaml.Node) (out []string) {
	name := path[strings.LastIndex(path, ".")+1:]
	switch {
	case isEmpty(node):
		if name != "topologySpreadConstraints" {
			out = append(out, path)
		}
	case node.Kind == yaml.MappingNode && !slices.Contains(free, name):
		for i := 0; i+1 < len(node.Content); i += 2 {
			out = append(out, empties(path+"."+node.Content[i].Value, node.Content[i+1])...)
		}
	}
	return out
}
