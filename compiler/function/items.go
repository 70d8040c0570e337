package function

import (
	"fmt"
	"strconv"

	"sigs.k8s.io/kustomize/kyaml/kio/kioutil"
	"sigs.k8s.io/kustomize/kyaml/yaml"

	"github.com/hapsnap/hapsnap/internal/manifests"
)

// item is an item of a list, and its text.
type item struct {
	node *yaml.RNode
	text string
	path string // of its file, as annotations say, or ""
	// index is its place in that file.
	index int
}

// items are those of a list that are compiled, by the name that stands for the
// file of each.
type items map[string]item

// readItems returns the items to compile. Snapshots among them are not read: the
// same list gives the same snapshot again.
func readItems(nodes []*yaml.RNode) (items, manifests.Set, error) {
	found := items{}
	var texts []manifests.Text
	for i, node := range nodes {
		if node.GetKind() == Kind || isSnapshot(node) {
			continue
		}
		text, err := node.String()
		if err != nil {
			return nil, manifests.Set{}, fmt.Errorf("read item %d: %w", i, err)
		}
		path, index, err := kioutil.GetFileAnnotations(node)
		if err != nil {
			return nil, manifests.Set{}, fmt.Errorf("read item %d: %w", i, err)
		}
		name := fmt.Sprintf("items[%d]", i)
		number, _ := strconv.Atoi(index) // 0 if there is none
		found[name] = item{node: node, text: text, path: path, index: number}
		texts = append(texts, manifests.Text{File: name, Data: []byte(text)})
	}
	return found, manifests.ReadTexts(texts...), nil
}

// isSnapshot reports whether an item is a ConfigMap that this function made.
func isSnapshot(node *yaml.RNode) bool {
	return node.GetKind() == "ConfigMap" && node.GetLabels()[NameLabel] != ""
}

// withSnapshot returns the items with a ConfigMap, in the place of one of its name.
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
