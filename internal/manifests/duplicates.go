package manifests

import (
	"strconv"

	"sigs.k8s.io/kustomize/kyaml/yaml"
)

// duplicates finds the fields that are given twice.
func (o Object) duplicates(n *yaml.Node, path []any, found []FieldError) []FieldError {
	if n.Kind == yaml.SequenceNode {
		for i, item := range n.Content {
			found = o.duplicates(item, append(path, i), found)
		}
	}
	if n.Kind != yaml.MappingNode {
		return found
	}
	earlier := newKeyIndex(n)
	for i := 0; i+1 < len(n.Content); i += 2 {
		key := n.Content[i]
		here := append(path, key.Value)
		if first := earlier.first(i); first != key {
			found = append(found, FieldError{
				Path: FieldPath(here), Position: o.place.at(key),
				Message: "is given twice, first on line " + strconv.Itoa(o.place.at(first).Line),
				Hint:    "keep one of the two",
			})
			continue
		}
		found = o.duplicates(n.Content[i+1], here, found)
	}
	return found
}

// keyIndex finds the first of equal keys of a mapping. Most mappings have a
// few fields, where looking is quicker than an index.
type keyIndex struct {
	content []*yaml.Node
	byName  map[string]*yaml.Node
}

// indexedKeys is the number of fields from which on an index is made.
const indexedKeys = 16

func newKeyIndex(n *yaml.Node) keyIndex {
	index := keyIndex{content: n.Content}
	if len(n.Content) > 2*indexedKeys {
		index.byName = make(map[string]*yaml.Node, len(n.Content)/2)
	}
	return index
}

// first returns the first key that equals the one at i. It is called for each
// key in order.
func (x keyIndex) first(i int) *yaml.Node {
	key := x.content[i]
	if x.byName != nil {
		if earlier := x.byName[key.Value]; earlier != nil {
			return earlier
		}
		x.byName[key.Value] = key
		return key
	}
	for j := 0; j < i; j += 2 {
		if x.content[j].Value == key.Value {
			return x.content[j]
		}
	}
	return key
}
