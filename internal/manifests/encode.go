package manifests

import (
	"encoding/json"
	"math"

	"sigs.k8s.io/kustomize/kyaml/yaml"
)

// encoder writes a tree of nodes as JSON, as the API server would get it.
// Nodes in omit are left out, and so is everything after the first limit
// nodes; last is the node that was written last, with the path to it.
type encoder struct {
	out      []byte
	omit     map[*yaml.Node]bool
	limit    int
	written  int
	path     []any
	last     *yaml.Node
	lastPath []any
}

// encode returns the JSON of a node.
func encode(n *yaml.Node) []byte {
	e := encoder{limit: math.MaxInt}
	e.value(n)
	return e.out
}

// wants reports whether a node is still to be written.
func (e *encoder) wants(n *yaml.Node) bool { return e.written < e.limit && !e.omit[n] }

func (e *encoder) value(n *yaml.Node) {
	e.written++
	if e.written == e.limit {
		e.last, e.lastPath = n, append([]any(nil), e.path...)
	}
	switch n.Kind {
	case yaml.MappingNode:
		e.mapping(n)
	case yaml.SequenceNode:
		e.sequence(n)
	default:
		e.out = append(e.out, scalar(n)...)
	}
}

func (e *encoder) mapping(n *yaml.Node) {
	e.out = append(e.out, '{')
	first := true
	for i := 0; i+1 < len(n.Content) && e.written < e.limit; i += 2 {
		key, value := n.Content[i], n.Content[i+1]
		if !e.wants(value) {
			continue
		}
		if !first {
			e.out = append(e.out, ',')
		}
		first = false
		e.out = append(append(e.out, quote(key.Value)...), ':')
		e.path = append(e.path, key.Value)
		e.value(value)
		e.path = e.path[:len(e.path)-1]
	}
	e.out = append(e.out, '}')
}

func (e *encoder) sequence(n *yaml.Node) {
	e.out = append(e.out, '[')
	for i, item := range n.Content {
		if e.written >= e.limit {
			break
		}
		if i > 0 {
			e.out = append(e.out, ',')
		}
		if e.omit[item] {
			// The items after it keep their indices.
			e.out = append(e.out, "null"...)
			continue
		}
		e.path = append(e.path, i)
		e.value(item)
		e.path = e.path[:len(e.path)-1]
	}
	e.out = append(e.out, ']')
}

// scalar returns the JSON of a plain value. Times and everything else that
// JSON has no kind for are strings.
func scalar(n *yaml.Node) []byte {
	switch {
	case isText(n):
		return quote(n.Value)
	case n.Tag == yaml.NodeTagNull:
		return []byte("null")
	case isNumberOrBool(n) && json.Valid([]byte(n.Value)):
		return []byte(n.Value)
	}
	if b, ok := oldBool(n.Value); ok && n.Style == 0 {
		return b
	}
	var v any
	if err := n.Decode(&v); err == nil {
		switch v.(type) {
		case bool, int, int64, uint64, float64:
			if b, err := json.Marshal(v); err == nil {
				return b
			}
		}
	}
	return quote(n.Value)
}

// isNumberOrBool reports whether a scalar is a number or a truth value.
func isNumberOrBool(n *yaml.Node) bool {
	return n.Tag == yaml.NodeTagInt || n.Tag == yaml.NodeTagFloat || n.Tag == yaml.NodeTagBool
}

// isText reports whether a scalar is a string to Kubernetes, whose YAML is
// that of version 1.1: a plain yes is a truth value there.
func isText(n *yaml.Node) bool {
	if n.Kind != yaml.ScalarNode || n.Tag != yaml.NodeTagString {
		return false
	}
	_, isBool := oldBool(n.Value)
	return !isBool || n.Style != 0
}

// oldBool returns the JSON of the words that are truth values in YAML 1.1 only.
func oldBool(word string) ([]byte, bool) {
	switch word {
	case "y", "Y", "yes", "Yes", "YES", "on", "On", "ON":
		return []byte("true"), true
	case "n", "N", "no", "No", "NO", "off", "Off", "OFF":
		return []byte("false"), true
	}
	return nil, false
}

// quote returns s as a JSON string.
func quote(s string) []byte {
	b, err := json.Marshal(s)
	if err != nil {
		panic(err) // a string has a JSON form
	}
	return b
}

// kindOf says in words what a node holds.
func kindOf(n *yaml.Node) string {
	switch {
	case n.Kind == yaml.MappingNode:
		return "a mapping"
	case n.Kind == yaml.SequenceNode:
		return "a list"
	case isText(n):
		return "a string"
	case n.Tag == yaml.NodeTagNull:
		return "empty"
	case n.Tag == yaml.NodeTagInt, n.Tag == yaml.NodeTagFloat:
		return "a number"
	case n.Tag == yaml.NodeTagBool, n.Tag == yaml.NodeTagString:
		return "a truth value"
	}
	return "of another kind"
}
