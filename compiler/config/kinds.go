package config

import (
	"errors"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/client-go/util/jsonpath"
)

// ObjectKind is a kind of objects that templates read.
type ObjectKind struct {
	// APIVersion is that of the kind, such as example.com/v1.
	APIVersion string `json:"apiVersion"`
	// Kind is the name of the kind, such as Widget. Secrets cannot be read:
	// templates have their values filled in with the function secret.
	Kind string `json:"kind"`
	// Optional says that the cluster need not know the kind. Until it does there
	// are no such objects; without this, nothing is compiled until it does.
	Optional bool `json:"optional"`
	// Namespaces are those whose objects are read; an empty list is all of them.
	Namespaces []string `json:"namespaces"`
	// NamespaceSelector selects namespaces by their labels, such as tenant=true.
	NamespaceSelector string `json:"namespaceSelector"`
	// LabelSelector selects objects by their labels.
	LabelSelector string `json:"labelSelector"`
	// FieldSelector selects objects by fields, such as spec.class=public. A cluster
	// can select by metadata.name and metadata.namespace, and by what the
	// CustomResourceDefinition lists as selectableFields.
	FieldSelector string `json:"fieldSelector"`
	// Indexes are JSONPaths by name, such as byHost: .spec.hosts[*]. A template has
	// the objects that hold a value there with .Indexed.
	Indexes map[string]string `json:"indexes"`
	// Drop are fields that are not kept, such as spec.schema or
	// metadata.annotations['example.com/notes']. In a list they are those of every
	// element. What the API server and kubectl keep for themselves is never kept:
	// metadata.managedFields and the last applied configuration.
	Drop []string `json:"drop"`
}

// GVK names the kind as templates do, such as example.com/v1/Widget.
func (k ObjectKind) GVK() string { return k.APIVersion + "/" + k.Kind }

var (
	// fieldForm is a path of fields as field selectors have it.
	fieldForm = regexp.MustCompile(`^[A-Za-z_][-\w]*(\.[A-Za-z_][-\w]*)*$`)
	// stepForm is one step of a path of fields that are dropped.
	stepForm      = regexp.MustCompile(`^(?:\.?([A-Za-z_][-\w]*)|\['([^']+)'\])`)
	indexNameForm = regexp.MustCompile(`^[A-Za-z][A-Za-z0-9]*$`)
)

// FieldPath returns the steps of a field's path, such as that of
// metadata.annotations['example.com/notes'].
func FieldPath(text string) ([]string, error) {
	var steps []string
	for rest := text; rest != ""; {
		m := stepForm.FindStringSubmatch(rest)
		if m == nil {
			return nil, fmt.Errorf("%q is not the path of a field", text)
		}
		steps = append(steps, m[1]+m[2])
		rest = rest[len(m[0]):]
	}
	if len(steps) == 0 {
		return nil, fmt.Errorf("%q is not the path of a field", text)
	}
	return steps, nil
}

// JSONPath returns the path of an index, parsed. Braces and the first dot may be
// left out. It is not for concurrent use.
func JSONPath(text string) (*jsonpath.JSONPath, error) {
	if text != "" && !strings.Contains(text, "{") {
		text = "{." + strings.TrimPrefix(text, ".") + "}"
	}
	parsed, err := jsonpath.Parse("index", text)
	if err != nil {
		return nil, err
	}
	if nodes := parsed.Root.Nodes; len(nodes) != 1 || nodes[0].Type() != jsonpath.NodeList || hasIdentifier(nodes[0]) {
		return nil, errors.New("it is not one path to values")
	}
	path := jsonpath.New("index").AllowMissingKeys(true)
	return path, path.Parse(text)
}

// hasIdentifier reports whether a node is, or begins with, a word of a template
// such as range.
func hasIdentifier(n jsonpath.Node) bool {
	list, ok := n.(*jsonpath.ListNode)
	return ok && (len(list.Nodes) == 0 || list.Nodes[0].Type() == jsonpath.NodeIdentifier)
}

// CheckAll checks each kind, and that none is there twice in any version.
func CheckAll(f Errors, kinds []ObjectKind) {
	type groupKind struct{ group, kind string }
	seen := map[groupKind]bool{}
	for i, k := range kinds {
		at := f.Element(i)
		k.Check(at)
		group, _, ok := strings.Cut(k.APIVersion, "/")
		if !ok {
			group = ""
		}
		if seen[groupKind{group, k.Kind}] {
			at.At("kind").Add(k.Kind+" is listed twice", "one version of a kind is enough: clusters convert")
		}
		seen[groupKind{group, k.Kind}] = true
		if group == "" && k.Kind == "Secret" {
			at.At("kind").Add("Secrets are not for templates to read",
				"values of Secrets are filled in by the pusher: use the function secret in a template")
		}
	}
}

// Check finds what is wrong with the fields.
func (k ObjectKind) Check(f Errors) {
	f.At("apiVersion").Add(checkAPIVersion(k.APIVersion), "use such as v1 or example.com/v1")
	f.At("kind").Add(checkKind(k.Kind), "use the name of a kind, such as Widget")
	CheckNamespaces(f.At("namespaces"), k.Namespaces)
	CheckLabelSelector(f.At("namespaceSelector"), k.NamespaceSelector)
	CheckLabelSelector(f.At("labelSelector"), k.LabelSelector)
	f.At("fieldSelector").Add(checkFieldSelector(k.FieldSelector), "write it as kubectl takes it, such as spec.class=public")
	for _, name := range slices.Sorted(maps.Keys(k.Indexes)) {
		at := f.At("indexes").At(name)
		if !indexNameForm.MatchString(name) {
			at.Add(fmt.Sprintf("%q is not the name of an index", name), "use letters and digits, such as byHost")
		}
		if _, err := JSONPath(k.Indexes[name]); err != nil {
			at.Add(fmt.Sprintf("%q is not a JSONPath: %s", k.Indexes[name], err), "use such as .spec.host or .spec.hosts[*]")
		}
	}
	for i, text := range k.Drop {
		f.At("drop").Element(i).Add(checkDropped(text), "use such as spec.schema or metadata.annotations['example.com/notes']")
	}
}

// checkDropped refuses what an object is known by.
func checkDropped(text string) string {
	path, err := FieldPath(text)
	if err != nil {
		return err.Error()
	}
	switch strings.Join(path, ".") {
	case "apiVersion", "kind", "metadata", "metadata.name", "metadata.namespace", "metadata.uid", "metadata.resourceVersion":
		return fmt.Sprintf("%q is what objects are known by", text)
	}
	return ""
}

func checkAPIVersion(text string) string {
	gv, err := schema.ParseGroupVersion(text)
	if err != nil || len(validation.IsDNS1035Label(gv.Version)) > 0 || gv.Group != "" && len(validation.IsDNS1123Subdomain(gv.Group)) > 0 {
		return fmt.Sprintf("%q is not an apiVersion", text)
	}
	return ""
}

func checkKind(text string) string {
	if text == "" || text[0] < 'A' || text[0] > 'Z' || len(validation.IsDNS1035Label(strings.ToLower(text))) > 0 {
		return fmt.Sprintf("%q is not a kind", text)
	}
	return ""
}
