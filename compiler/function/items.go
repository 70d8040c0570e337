package function

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"k8s.io/apimachinery/pkg/util/validation"
	"sigs.k8s.io/kustomize/kyaml/fn/framework"
	"sigs.k8s.io/kustomize/kyaml/yaml"

	"github.com/hapsnap/hapsnap/compiler/diag"
	"github.com/hapsnap/hapsnap/internal/manifests"
	"github.com/hapsnap/hapsnap/internal/process"
	"github.com/hapsnap/hapsnap/snapshots"
)

// item is an item of a list, and its text.
type item struct {
	node *yaml.RNode
	text string
	path string // of its file, as annotations say, or ""
	// index is its place in that file.
	index int
}

// items are the items of a list that are compiled, by the name that stands for the file of each.
type items map[string]item

// isSnapshot reports whether an item is a ConfigMap that this function made.
func isSnapshot(node *yaml.RNode) bool {
	return node.GetKind() == "ConfigMap" && node.GetLabels()[NameLabel] != ""
}

// withSnapshot returns the items with a ConfigMap, which replaces one of its name.
func withSnapshot(nodes []*yaml.RNode, made *yaml.RNode) []*yaml.RNode {
	for i, node := range nodes {
		if isSnapshot(node) && node.GetName() == made.GetName() && node.GetNamespace() == made.GetNamespace() {
			nodes[i] = made
			return nodes
		}
	}
	return append(nodes, made)
}

// fieldAt returns the field at a place of a text, such as spec.rules[0].host, or
// "".
func fieldAt(text string, line, column int) string {
	var doc yaml.Node
	if err := yaml.Unmarshal([]byte(text), &doc); err != nil || len(doc.Content) == 0 {
		return ""
	}
	return manifests.FieldPath(pathTo(doc.Content[0], line, column, nil))
}

// pathTo returns the path to the node at a place, or nil. A mapping's field is at
// its key or at its value.
func pathTo(n *yaml.Node, line, column int, path []any) []any {
	is := func(n *yaml.Node) bool { return n.Line == line && n.Column == column }
	switch n.Kind {
	case yaml.MappingNode:
		for i := 0; i+1 < len(n.Content); i += 2 {
			field := append(path[:len(path):len(path)], n.Content[i].Value)
			if is(n.Content[i]) || is(n.Content[i+1]) && n.Content[i+1].Kind == yaml.ScalarNode {
				return field
			}
			if found := pathTo(n.Content[i+1], line, column, field); found != nil {
				return found
			}
		}
	case yaml.SequenceNode:
		for i, element := range n.Content {
			at := append(path[:len(path):len(path)], i)
			if found := pathTo(element, line, column, at); found != nil {
				return found
			}
			if is(element) {
				return at
			}
		}
	}
	return nil
}

// The tags of results. Lines are lines of files that the function read itself. Of items only the field
// is known, since they were written anew.
const (
	hintTag   = "hint"
	lineTag   = "line"
	columnTag = "column"
)

// result is a diagnostic as a result of the list.
func (x items) result(d diag.Diagnostic) *framework.Result {
	r := &framework.Result{Message: d.Message, Severity: framework.Warning, Tags: map[string]string{}}
	if d.Severity == diag.Error {
		r.Severity = framework.Error
	}
	if d.Hint != "" {
		r.Tags[hintTag] = d.Hint
	}
	if (d.Object != diag.Object{}) {
		r.ResourceRef = &yaml.ResourceIdentifier{
			TypeMeta: yaml.TypeMeta{Kind: d.Object.Kind},
			NameMeta: yaml.NameMeta{Namespace: d.Object.Namespace, Name: d.Object.Name},
		}
	}
	if i, ok := x[d.Position.File]; ok {
		// The item, and the field of it, that the result is about.
		if r.ResourceRef != nil {
			r.ResourceRef.APIVersion = i.node.GetApiVersion()
		}
		if i.path != "" {
			r.File = &framework.File{Path: i.path, Index: i.index}
		}
		if path := fieldAt(i.text, d.Position.Line, d.Position.Column); path != "" {
			r.Field = &framework.Field{Path: path}
		}
	} else if d.Position.File != "" {
		r.File = &framework.File{Path: d.Position.File}
		if d.Position.Line > 0 {
			r.Tags[lineTag] = strconv.Itoa(d.Position.Line)
		}
		if d.Position.Column > 0 {
			r.Tags[columnTag] = strconv.Itoa(d.Position.Column)
		}
	}
	return r
}

// line is a diagnostic for people: with the file and the field of an item, whose line is not known.
func (x items) line(d diag.Diagnostic) string {
	i, ok := x[d.Position.File]
	if !ok {
		return d.String()
	}
	if field := fieldAt(i.text, d.Position.Line, d.Position.Column); field != "" {
		d.Message = fmt.Sprintf("%s: %s", field, d.Message)
	}
	d.Position = diag.Position{File: i.path}
	return d.String()
}

const (
	// NameLabel of a ConfigMap with a snapshot has the name in the function's configuration.
	NameLabel = "hapsnap.dev/snapshots"
	// DigestAnnotation holds the digest of the snapshot.
	DigestAnnotation = "hapsnap.dev/digest"
)

// maxSize is the limit for all values of a ConfigMap together, in bytes.
const maxSize = 1 << 20

var (
	errTooLarge = errors.New("does not fit into a ConfigMap, which holds 1 MiB")
	errBadName  = errors.New("is not the name of a ConfigMap")
)

// Key returns the key of a file of a snapshot in a ConfigMap, where a key has no slash: maps/host.map
// is maps..host.map. No path has two dots in a row, since the Dataplane API keeps no such name.
func Key(path string) string { return strings.ReplaceAll(path, "/", "..") }

// Path returns the path of the file for a key.
func Path(key string) string { return strings.ReplaceAll(key, "..", "/") }

// configMap returns the ConfigMap NAME-DIGEST with the files of a snapshot and
// its manifest.
func configMap(namespace, name string, s snapshots.Snapshot) (*yaml.RNode, error) {
	manifest, err := s.Manifest.Marshal()
	if err != nil {
		return nil, err
	}
	files := append(slices.Clone(s.Files), snapshots.File{Path: snapshots.ManifestFile, Content: manifest})
	if err := fits(files); err != nil {
		return nil, err
	}
	digest := s.Manifest.Spec.Digest
	full := name + "-" + digest.Short()
	if problems := append(validation.IsDNS1123Subdomain(full), validation.IsValidLabelValue(name)...); len(problems) > 0 {
		return nil, fmt.Errorf("%s %w: %s", full, errBadName, problems[0])
	}
	values := map[string]string{}
	for _, f := range files {
		values[Key(f.Path)] = string(f.Content)
	}
	node := yaml.NewMapRNode(nil)
	metadata := []yaml.Filter{
		yaml.SetK8sName(full),
		yaml.SetLabel(NameLabel, name),
		yaml.SetAnnotation(DigestAnnotation, string(digest)),
	}
	if namespace != "" {
		metadata = append(metadata, yaml.SetK8sNamespace(namespace))
	}
	yes := yaml.NewScalarRNode("true")
	yes.YNode().Tag = yaml.NodeTagBool
	return node, errors.Join(
		node.PipeE(yaml.SetField("apiVersion", yaml.NewStringRNode("v1"))),
		node.PipeE(yaml.SetField("kind", yaml.NewStringRNode("ConfigMap"))),
		pipeAll(node, metadata),
		node.PipeE(yaml.SetField("immutable", yes)),
		node.LoadMapIntoConfigMapData(values),
	)
}

// pipeAll applies one filter after the other to the same node.
func pipeAll(node *yaml.RNode, filters []yaml.Filter) error {
	for _, f := range filters {
		if err := node.PipeE(f); err != nil {
			return err
		}
	}
	return nil
}

// fits reports whether the files fit into a ConfigMap. If not, it names the large ones.
func fits(files []snapshots.File) error {
	total := 0
	for _, f := range files {
		total += len(f.Content)
	}
	if total <= maxSize {
		return nil
	}
	return process.WithHint(
		fmt.Errorf("the snapshot has %d bytes and %w; the largest files: %s", total, errTooLarge, snapshots.Largest(files)),
		"publish it to a git store with compiler run or compiler render")
}
