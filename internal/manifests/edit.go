package manifests

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"

	"sigs.k8s.io/kustomize/kyaml/yaml"
)

// Files returns the manifests in a directory and below it, or the one file that
// is named, sorted. Hidden files and directories are skipped.
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

// EditFile reads a file and calls edit with each object of it, and with how many
// lines of the file come before the lines of the object's nodes. The result is
// the file with those documents written anew whose objects edit says it has
// changed; every other byte is as it was. A document that cannot be read is left
// as it is, and so is one whose aliases make it unclear what an edit means.
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

// editJSON edits the objects of a JSON file, which is written with sorted keys.
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

// objectNodes returns the objects of a value: itself, or the items of a List.
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
