package config

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"os"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"sigs.k8s.io/kustomize/kyaml/yaml"

	"github.com/hapsnap/hapsnap/compiler/config/field"
	"github.com/hapsnap/hapsnap/compiler/diag"
	"github.com/hapsnap/hapsnap/internal/process"
	"github.com/hapsnap/hapsnap/snapshots"
)

// document is a CompilerConfig as it is written.
type document struct {
	APIVersion string `json:"apiVersion"`
	Kind       string `json:"kind"`
	Metadata   struct {
		Name string `json:"name"`
	} `json:"metadata"`
	Spec Config `json:"spec"`
}

// Read reads the configuration file at path. Errors in its content are returned as
// diagnostics, and the Config must not be used then. The error is for a file that cannot be
// read.
func Read(path string) (Config, Places, []diag.Diagnostic, error) {
	data, err := os.ReadFile(path)
	if err != nil {
		return Config{}, Places{}, nil, fmt.Errorf("read configuration: %w", err)
	}
	c, ds := Parse(path, data)
	return c, Places{path, data}, ds, nil
}

// Places knows the positions of the fields of a file. The zero Places has none.
type Places struct {
	file string
	data []byte
}

// PlacesOf returns the positions of the fields of a text; file is its name in diagnostics.
func PlacesOf(file string, data []byte) Places { return Places{file, data} }

// Locate returns Errors of the file's fields at their places.
func (p Places) Locate(Errors []field.Error) []diag.Diagnostic {
	r := reader{file: p.file}
	var root *yaml.Node
	if p.file != "" {
		root = r.root(p.data)
	}
	for _, f := range Errors {
		r.fieldFault(root, f)
	}
	return diag.Sort(r.found)
}

// fieldFault adds the diagnostic of a field below the root of a document.
func (r *reader) fieldFault(root *yaml.Node, f field.Error) {
	at := root
	if root != nil {
		at = lookup(root, append([]string{"spec"}, f.Path...))
	}
	r.fault(at, f.Error(), f.Hint)
}

// Parse reads a configuration; file is its name in diagnostics.
func Parse(file string, data []byte) (Config, []diag.Diagnostic) {
	r := reader{file: file}
	doc := document{Spec: Default()}
	root := r.root(data)
	if root != nil {
		r.decode(root, reflect.ValueOf(&doc).Elem(), nil)
	}
	if len(r.found) == 0 && (doc.APIVersion != snapshots.APIVersion || doc.Kind != Kind) {
		r.fault(root, fmt.Sprintf("is %q of %q, not a %s", doc.Kind, doc.APIVersion, Kind),
			fmt.Sprintf("begin with apiVersion: %s and kind: %s", snapshots.APIVersion, Kind))
	}
	if len(r.found) > 0 {
		return Config{}, diag.Sort(r.found)
	}
	for _, f := range doc.Spec.Check() {
		r.fieldFault(root, f)
	}
	return doc.Spec, diag.Sort(r.found)
}

// reader decodes a YAML document and collects its diagnostics.
type reader struct {
	file  string
	found []diag.Diagnostic
}

// yamlLine matches the line that the YAML parser's errors name.
var yamlLine = regexp.MustCompile(`line (\d+): `)

// root returns the mapping of the document, or nil and a diagnostic.
func (r *reader) root(data []byte) *yaml.Node {
	var doc yaml.Node
	decoder := yaml.NewDecoder(strings.NewReader(string(data)))
	if err := decoder.Decode(&doc); err != nil && !errors.Is(err, io.EOF) {
		text := strings.TrimPrefix(err.Error(), "yaml: ")
		node := &yaml.Node{}
		if m := yamlLine.FindStringSubmatch(text); m != nil {
			node.Line, _ = strconv.Atoi(m[1])
			text = strings.Replace(text, m[0], "", 1)
		}
		r.fault(node, "not YAML: "+text, "")
		return nil
	}
	if len(doc.Content) != 1 || doc.Content[0].Kind != yaml.MappingNode {
		r.fault(nil, "is not a "+Kind, "begin with apiVersion: "+snapshots.APIVersion+" and kind: "+Kind)
		return nil
	}
	var more yaml.Node
	if err := decoder.Decode(&more); !errors.Is(err, io.EOF) {
		r.fault(&more, "holds more than one document", "keep one "+Kind+" to a file")
		return nil
	}
	return doc.Content[0]
}

// fault adds a diagnostic at a node; nil is the file as a whole.
func (r *reader) fault(n *yaml.Node, message, hint string) {
	at := diag.Position{File: r.file}
	if n != nil {
		at.Line, at.Column = n.Line, n.Column
	}
	r.found = append(r.found, diag.Diagnostic{Severity: diag.Error, Position: at, Message: message, Hint: hint})
}

// decode decodes a node into a value; path is the position of the node in the document. A
// list or a map replaces the default and does not extend it.
func (r *reader) decode(n *yaml.Node, into reflect.Value, path []string) {
	if n.Kind == yaml.AliasNode {
		n = n.Alias
	}
	if want := shape(into.Kind()); n.Kind != want {
		r.fault(n, fmt.Sprintf("%s: want %s, not %s", field.JoinPath(path), wanted(into.Kind()), describe(n)), "")
		return
	}
	switch into.Kind() {
	case reflect.Struct:
		r.decodeStruct(n, into, path)
	case reflect.Map:
		// The keys of a map are text.
		into.Set(reflect.MakeMap(into.Type()))
		r.eachField(n, path, func(key, value *yaml.Node, at []string) {
			item := reflect.New(into.Type().Elem()).Elem()
			r.decode(value, item, at)
			into.SetMapIndex(reflect.ValueOf(key.Value).Convert(into.Type().Key()), item)
		})
	case reflect.Slice:
		into.Set(reflect.MakeSlice(into.Type(), len(n.Content), len(n.Content)))
		for i, item := range n.Content {
			r.decode(item, into.Index(i), append(slices.Clone(path), strconv.Itoa(i)))
		}
	default:
		if n.Tag == yaml.NodeTagNull || n.Decode(into.Addr().Interface()) != nil {
			r.fault(n, fmt.Sprintf("%s: want %s, not %s", field.JoinPath(path), wanted(into.Kind()), describe(n)), "")
		}
	}
}

// shape returns the kind of node that a kind of value is written as.
func shape(k reflect.Kind) yaml.Kind {
	switch k {
	case reflect.Struct, reflect.Map:
		return yaml.MappingNode
	case reflect.Slice:
		return yaml.SequenceNode
	}
	return yaml.ScalarNode
}

func (r *reader) decodeStruct(n *yaml.Node, into reflect.Value, path []string) {
	r.eachField(n, path, func(key, value *yaml.Node, at []string) {
		i := slices.Index(tags(into.Type()), key.Value)
		if i < 0 {
			r.fault(key, field.JoinPath(at)+": unknown field", cmp.Or(process.DidYouMean(key.Value, tags(into.Type())), "use one of "+strings.Join(tags(into.Type()), ", ")))
			return
		}
		target := into.Field(i)
		r.decode(value, target, at)
	})
}

// eachField calls do for each key of a mapping, and reports duplicate keys.
func (r *reader) eachField(n *yaml.Node, path []string, do func(key, value *yaml.Node, at []string)) {
	seen := map[string]bool{}
	for i := 0; i+1 < len(n.Content); i += 2 {
		key := n.Content[i]
		at := append(slices.Clone(path), key.Value)
		if seen[key.Value] {
			r.fault(key, field.JoinPath(at)+": is set twice", "")
			continue
		}
		seen[key.Value] = true
		do(key, n.Content[i+1], at)
	}
}

func wanted(k reflect.Kind) string {
	switch k {
	case reflect.Struct, reflect.Map:
		return "fields"
	case reflect.Bool:
		return "true or false"
	case reflect.Int:
		return "a number"
	case reflect.Slice:
		return "a list"
	}
	return "a text"
}

func describe(n *yaml.Node) string {
	switch {
	case n.Kind == yaml.MappingNode:
		return "fields"
	case n.Kind == yaml.SequenceNode:
		return "a list"
	case n.Tag == yaml.NodeTagNull:
		return "nothing"
	}
	return strconv.Quote(n.Value)
}

// tags lists the JSON names of the fields of a struct.
func tags(t reflect.Type) []string {
	names := make([]string, t.NumField())
	for i := range names {
		names[i] = t.Field(i).Tag.Get("json")
	}
	return names
}

// lookup returns the value at a path below a node, or the nearest one above.
func lookup(n *yaml.Node, path []string) *yaml.Node {
	for _, name := range path {
		next := child(n, name)
		if next == nil {
			return n
		}
		n = next
	}
	return n
}

// child returns the value of a key, or the element of a list with a number, or
// nil.
func child(n *yaml.Node, name string) *yaml.Node {
	if n.Kind == yaml.AliasNode {
		n = n.Alias
	}
	switch n.Kind {
	case yaml.MappingNode:
		for i := 0; i+1 < len(n.Content); i += 2 {
			if n.Content[i].Value == name {
				return n.Content[i+1]
			}
		}
	case yaml.SequenceNode:
		if i, err := strconv.Atoi(name); err == nil && i >= 0 && i < len(n.Content) {
			return n.Content[i]
		}
	}
	return nil
}
