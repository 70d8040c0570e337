package manifests

import (
	"strconv"
	"strings"

	"sigs.k8s.io/kustomize/kyaml/yaml"
)

// Position returns where a field is; path holds the names of fields as strings
// and the indices of lists as ints. A field with a plain value is where its
// value is; one that holds a list or a mapping, where its name is. For a field
// that is not there it is the place of the nearest parent that is; without a
// path, the start of the object.
func (o Object) Position(path ...any) Position {
	node, found := o.node, o.node
	for _, step := range path {
		key, value := child(node, step)
		if value == nil {
			break
		}
		node, found = value, value
		if key != nil && value.Kind != yaml.ScalarNode {
			found = key
		}
	}
	if found == nil {
		return Position{File: o.place.file}
	}
	return o.place.at(found)
}

// child returns the value that one step of a path leads to, and its key if it
// is in a mapping, or nil.
func child(n *yaml.Node, step any) (key, value *yaml.Node) {
	switch s := step.(type) {
	case string:
		return field(n, s)
	case int:
		if n != nil && n.Kind == yaml.SequenceNode && s >= 0 && s < len(n.Content) {
			return nil, n.Content[s]
		}
	}
	return nil, nil
}

// field returns the key and the value of a mapping's field, or nil.
func field(n *yaml.Node, name string) (key, value *yaml.Node) {
	if n == nil || n.Kind != yaml.MappingNode {
		return nil, nil
	}
	for i := 0; i+1 < len(n.Content); i += 2 {
		if n.Content[i].Value == name {
			return n.Content[i], n.Content[i+1]
		}
	}
	return nil, nil
}

// pathString writes a path as people do: spec.rules[0].host, with the names
// that are no identifiers in quotes.
func pathString(path []any) string {
	var b strings.Builder
	for _, step := range path {
		switch s := step.(type) {
		case int:
			b.WriteString("[" + strconv.Itoa(s) + "]")
		case string:
			if !isIdentifier(s) {
				b.WriteString("[" + strconv.Quote(s) + "]")
				continue
			}
			if b.Len() > 0 {
				b.WriteByte('.')
			}
			b.WriteString(s)
		}
	}
	return b.String()
}

// isIdentifier reports whether s can stand in a path without quotes.
func isIdentifier(s string) bool {
	notWord := func(r rune) bool {
		return (r < 'a' || r > 'z') && (r < 'A' || r > 'Z') && (r < '0' || r > '9') && r != '-' && r != '_'
	}
	return s != "" && strings.IndexFunc(s, notWord) < 0
}
