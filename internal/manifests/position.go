package manifests

import (
	"strconv"

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

// FieldPath writes a path as people do: spec.rules[0].host, with the names
// that are no identifiers in quotes.
func FieldPath(path []any) string {
	out := make([]byte, 0, 64) // this is called for every field that matters, of every object
	for _, step := range path {
		switch s := step.(type) {
		case int:
			out = append(strconv.AppendInt(append(out, '['), int64(s), 10), ']')
		case string:
			if !isIdentifier(s) {
				out = append(strconv.AppendQuote(append(out, '['), s), ']')
				continue
			}
			if len(out) > 0 {
				out = append(out, '.')
			}
			out = append(out, s...)
		}
	}
	return string(out)
}

// isIdentifier reports whether s can stand in a path without quotes.
func isIdentifier(s string) bool {
	for _, c := range []byte(s) {
		if (c < 'a' || c > 'z') && (c < 'A' || c > 'Z') && (c < '0' || c > '9') && c != '-' && c != '_' {
			return false
		}
	}
	return s != ""
}
