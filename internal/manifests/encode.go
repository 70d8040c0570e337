package manifests

import (
	"bytes"
	"encoding/json"
	"fmt"
	"math"
	"os"
	"path/filepath"

	"sigs.k8s.io/kustomize/kyaml/yaml"
)

// encoder writes a tree of nodes as JSON, as the API server would get it. It leaves out nodes in omit, and
// everything after the first limit nodes. Last is the node that was written last, with the path to it.
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

func (e *encoder) value(n *yaml.Node) {
	e.written++
	if e.written == e.limit {
		e.last, e.lastPath = n, append([]any(nil), e.path...)
	}
	switch n.Kind {
	case yaml.MappingNode:
		e.out = append(e.out, '{')
		first := true
		for i := 0; i+1 < len(n.Content) && e.written < e.limit; i += 2 {
			key, value := n.Content[i], n.Content[i+1]
			if e.omit[value] {
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
	case yaml.SequenceNode:
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
	default:
		e.out = append(e.out, scalar(n)...)
	}
}

// scalar returns the JSON of a plain value. Times, and everything else for which JSON has no kind, are strings.
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

// isText reports whether a scalar is a string to Kubernetes. Its YAML is version 1.1, where a plain yes is a
// truth value.
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

// kindOf describes in words what a node holds.
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

// Files returns, sorted, the manifests in a directory and below it, or the one file that is named. It skips
// hidden files and directories.
func Files(dir string) ([]string, error) {
	l, err := list(dir, isManifest)
	if err != nil {
		return nil, err
	}
	var out []string
	for _, f := range l.files {
		out = append(out, f.path)
	}
	return out, nil
}

// EditFile reads a file and calls edit with each object of it, and with the number of lines that come before
// the object's document. The result is the file in which those documents are rewritten whose objects edit says
// it has changed. All other bytes stay. A document that cannot be read stays as it is, and so does one whose
// aliases make it unclear what an edit means.
func EditFile(name string, edit func(object *yaml.Node, before int) (changed bool)) (out []byte, changed bool, err error) {
	data, err := os.ReadFile(name)
	if err != nil {
		return nil, false, fmt.Errorf("read manifests: %w", err)
	}
	if filepath.Ext(name) == ".json" {
		return editJSON(data, edit)
	}
	last := 0
	for _, c := range splitYAML(data) {
		text, edited, err := editDocument(c, edit)
		if err != nil {
			return nil, false, fmt.Errorf("rewrite %s: %w", name, err)
		}
		if !edited {
			continue
		}
		start := last + bytes.Index(data[last:], c.text)
		out = append(append(out, data[last:start]...), text...)
		last, changed = start+len(c.text), true
	}
	return append(out, data[last:]...), changed, nil
}

// editDocument edits the objects of one document.
func editDocument(c chunk, edit func(*yaml.Node, int) bool) (text []byte, changed bool, err error) {
	root, ok := plainTree(c.text)
	if !ok {
		return nil, false, nil
	}
	for _, object := range objectNodes(root.Content[0]) {
		changed = edit(object, c.lines) || changed
	}
	if !changed {
		return nil, false, nil
	}
	var out bytes.Buffer
	if isMarker(c.text, "---") {
		out.WriteString("---\n")
	}
	enc := yaml.NewEncoderWithOptions(&out, &yaml.EncoderOptions{SeqIndent: yaml.SequenceIndentStyle(yaml.DeriveSeqIndentStyle(string(c.text)))})
	if err := enc.Encode(root); err != nil {
		return nil, false, err
	}
	return out.Bytes(), true, enc.Close()
}

// plainTree parses a document that has no aliases.
func plainTree(text []byte) (*yaml.Node, bool) {
	var root yaml.Node
	err := yaml.NewDecoder(bytes.NewReader(text)).Decode(&root)
	return &root, err == nil && len(root.Content) > 0 && isPlain(&root, 0)
}

// editJSON edits the objects of a JSON file, and writes it with sorted keys.
func editJSON(data []byte, edit func(*yaml.Node, int) bool) (out []byte, changed bool, err error) {
	values, problem := parseJSON(data)
	if problem != nil || len(values) != 1 {
		return data, false, nil
	}
	for _, object := range objectNodes(values[0]) {
		changed = edit(object, 0) || changed
	}
	if !changed {
		return data, false, nil
	}
	var value any
	if err := values[0].Decode(&value); err != nil {
		return nil, false, err
	}
	out, err = json.MarshalIndent(value, "", "  ")
	return append(out, '\n'), true, err
}

// objectNodes returns the objects of a value: the value itself, or the items of a List.
func objectNodes(n *yaml.Node) []*yaml.Node {
	if n.Kind != yaml.MappingNode {
		return nil
	}
	elements, isList := listItems(newObject(n, GVK{}))
	if !isList {
		return []*yaml.Node{n}
	}
	var out []*yaml.Node
	for _, element := range elements {
		out = append(out, objectNodes(element)...)
	}
	return out
}
