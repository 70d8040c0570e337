// Package kinds has the part of the configuration about objects to read: the additional kinds that templates
// read, with their namespaces and labels, and which Secrets and ConfigMaps.
package kinds

import (
	"errors"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/client-go/util/jsonpath"

	"github.com/hapsnap/hapsnap/compiler/config/field"
)

// Kind is a kind of objects that templates read.
type Kind struct {
	// APIVersion is the apiVersion of the kind, such as example.com/v1.
	APIVersion string `json:"apiVersion"`
	// Kind is the name of the kind, such as Widget. Templates cannot read Secrets; the
	// function secret inserts their values.
	Kind string `json:"kind"`
	// Optional says that the cluster need not know the kind. While it does not, there are
	// no such objects. Without this option a compiler that starts compiles nothing until the
	// cluster knows the kind, and one that runs goes on with the configuration before.
	Optional bool `json:"optional"`
	// Namespaces are the namespaces whose objects are read. An empty list means all namespaces.
	Namespaces []string `json:"namespaces"`
	// NamespaceSelector selects namespaces by their labels, such as tenant=true.
	NamespaceSelector string `json:"namespaceSelector"`
	// LabelSelector selects objects by their labels.
	LabelSelector string `json:"labelSelector"`
	// FieldSelector selects objects by fields, such as spec.class=public. A cluster
	// can select by metadata.name and metadata.namespace, and by what the
	// CustomResourceDefinition lists as selectableFields.
	FieldSelector string `json:"fieldSelector"`
	// Indexes are JSONPaths by name, such as byHost: .spec.hosts[*]. With .Indexed a
	// template gets the objects that have a value there.
	Indexes map[string]string `json:"indexes"`
	// Drop are fields that are not kept, such as spec.schema or
	// metadata.annotations['example.com/notes']. In a list, the field of every element is dropped.
	// Fields that the API server and kubectl write for themselves are never kept:
	// metadata.managedFields and the last applied configuration.
	Drop []string `json:"drop"`
}

// GVK names the kind as templates do, such as example.com/v1/Widget.
func (k Kind) GVK() string { return k.APIVersion + "/" + k.Kind }

var (
	// fieldForm matches a path of fields in a field selector.
	fieldForm = regexp.MustCompile(`^[A-Za-z_][-\w]*(\.[A-Za-z_][-\w]*)*$`)
	// stepForm matches one step of a path of fields that are dropped.
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

// JSONPath returns the parsed path of an index. Braces and the first dot may be left out.
// It is not for concurrent use.
func JSONPath(text string) (*jsonpath.JSONPath, error) {
	if text != "" && !strings.Contains(text, "{") {
		text = "{." + strings.TrimPrefix(text, ".") + "}"
	}
	parsed, err := jsonpath.Parse("index", text)
	if err != nil {
		return nil, err
	}
	if nodes := parsed.Root.Nodes; len(nodes) != 1 || nodes[0].Type() != jsonpath.NodeList || hasIdentifier(nodes[0]) {
		return nil, errors.New("it must be one path to values")
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

// CheckAll checks each kind, and that none is listed twice in any version.
func CheckAll(f field.Errors, kinds []Kind) {
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
			at.At("kind").Add("templates cannot read Secrets",
				"values of Secrets are filled in by the pusher: use the function secret in a template")
		}
	}
}

// Check finds what is wrong with the fields.
func (k Kind) Check(f field.Errors) {
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

// checkDropped refuses fields that identify an object.
func checkDropped(text string) string {
	path, err := FieldPath(text)
	if err != nil {
		return err.Error()
	}
	switch strings.Join(path, ".") {
	case "apiVersion", "kind", "metadata", "metadata.name", "metadata.namespace", "metadata.uid", "metadata.resourceVersion":
		return fmt.Sprintf("%q identifies objects and cannot be changed", text)
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

// Watched says which objects of a kind are read from a cluster.
type Watched struct {
	// Watch says which objects the compiler reads. With named, the compiler reads each object that an
	// Ingress, this configuration or a template names, by its name. With selected, it reads
	// those that labelSelector selects. With all, it reads every object, which needs the
	// permission to list them.
	Watch Watch `json:"watch"`
	// LabelSelector selects objects by their labels, such as app=shop, where watch
	// is selected.
	LabelSelector string `json:"labelSelector"`
}

// Watch says which objects of a kind are read.
type Watch string

// The values: objects that something names, objects with a label, or all objects.
const (
	WatchNamed    Watch = "named"
	WatchSelected Watch = "selected"
	WatchAll      Watch = "all"
)

// Check finds what is wrong with the fields.
func (w Watched) Check(f field.Errors) {
	switch w.Watch {
	case WatchNamed, WatchSelected, WatchAll:
	default:
		f.At("watch").Add(fmt.Sprintf("%q is neither named, selected nor all", string(w.Watch)), "use named, unless you need objects that nothing names")
		return
	}
	switch {
	case w.Watch == WatchSelected && w.LabelSelector == "":
		f.At("watch").Add("is selected, but there is no labelSelector", "add one, such as app=shop, or use named")
	case w.Watch != WatchSelected && w.LabelSelector != "":
		f.At("labelSelector").Add(fmt.Sprintf("selects nothing where watch is %s", w.Watch), "use watch: selected")
	}
	CheckLabelSelector(f.At("labelSelector"), w.LabelSelector)
}

// CheckLabelSelector checks a selector of labels as kubectl takes it.
func CheckLabelSelector(f field.Errors, text string) {
	if _, err := labels.Parse(text); err != nil {
		reason, _, _ := strings.Cut(err.Error(), " (e.g.") // what follows is a regular expression
		f.Add(fmt.Sprintf("%q is not a label selector: %s", text, reason), "write it as kubectl takes it, such as app=shop or tier in (web, api)")
	}
}

func checkFieldSelector(text string) string {
	selector, err := fields.ParseSelector(text)
	if err != nil {
		return fmt.Sprintf("%q is not a field selector: %s", text, err)
	}
	for _, r := range selector.Requirements() {
		if !fieldForm.MatchString(r.Field) {
			return fmt.Sprintf("%q is not a field selector: %q is not the path of a field", text, r.Field)
		}
	}
	return ""
}

// CheckNamespaces checks a list of namespaces; an empty one means all.
func CheckNamespaces(f field.Errors, names []string) {
	for i, name := range names {
		if len(validation.IsDNS1123Label(name)) > 0 {
			f.Element(i).Add(fmt.Sprintf("%q is not a namespace", name), "use names of namespaces; an empty list is all of them")
		}
	}
}
