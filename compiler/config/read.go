package config

import (
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

	"github.com/hapsnap/hapsnap/compiler/diag"
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

// Read reads the configuration file at path. What is wrong with its content is
// returned as diagnostics, and then the Config is not to be used; the error is
// for a file that cannot be read.
func Read(path string) (Config, []diag.Diagnostic, error) {
	data, err := os.ReadFile(path)
	if err != nil {
		return Config{}, nil, fmt.Errorf("read configuration: %w", err)
	}
	c, ds := Parse(path, data)
	return c, ds, nil
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
		r.fault(lookup(root, append([]string{"spec"}, f.Path...)), f.Error(), f.Hint)
	}
	return doc.Spec, diag.Sort(r.found)
}

// reader decodes a YAML document and keeps what is wrong with it.
type reader struct {
	file  string
	found []diag.Diagnostic
}

// yamlLine matches the line that the YAML parser's errors name.
var yamlLine = regexp.MustCompile(`line (\d+): `)

// root returns the mapping that the document is, or nil and a diagnostic.
func (r *reader) root(data []byte) *yaml.Node {
	var doc yaml.Node
	decoder := yaml.NewDecoder(strings.NewReader(string(data)))
	if err := decoder.Decode(&doc); err != nil && !errors.Is(err, io.EOF) {
		r.syntax(err)
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

// syntax reports an error of the YAML parser.
func (r *reader) syntax(err error) {
	text := strings.TrimPrefix(err.Error(), "yaml: ")
	node := &yaml.Node{}
	if m := yamlLine.FindStringSubmatch(text); m != nil {
		node.Line, _ = strconv.Atoi(m[1])
		text = strings.Replace(text, m[0], "", 1)
	}
	r.fault(node, "not YAML: "+text, "")
}

// fault adds a diagnostic at a node; nil is the file as a whole.
func (r *reader) fault(n *yaml.Node, message, hint string) {
	at := diag.Position{File: r.file}
	if n != nil {
		at.Line, at.Column = n.Line, n.Column
	}
	r.found = append(r.found, diag.Diagnostic{Severity: diag.Error, Position: at, Message: message, Hint: hint})
}

// decode puts a node into a value; path is where the node is in the document.
func (r *reader) decode(n *yaml.Node, into reflect.Value, path []string) {
	if n.Kind == yaml.AliasNode {
		n = n.Alias
	}
	if into.Kind() != reflect.Struct {
		r.decodeValue(n, into, path)
		return
	}
	if n.Kind != yaml.MappingNode {
		r.fault(n, strings.Join(path, ".")+": want fields, not "+describe(n), "")
		return
	}
	var seen []string
	for i := 0; i+1 < len(n.Content); i += 2 {
		key := n.Content[i]
		at := append(slices.Clone(path), key.Value)
		field, ok := fieldByTag(into, key.Value)
		switch {
		case !ok:
			r.fault(key, strings.Join(at, ".")+": unknown field", "use one of "+strings.Join(tags(into.Type()), ", "))
		case slices.Contains(seen, key.Value):
			r.fault(key, strings.Join(at, ".")+": is set twice", "")
		default:
			r.decode(n.Content[i+1], field, at)
		}
		seen = append(seen, key.Value)
	}
}

// decodeValue puts a scalar or a list of scalars into a value.
func (r *reader) decodeValue(n *yaml.Node, into reflect.Value, path []string) {
	if into.Kind() == reflect.Slice {
		into.SetZero() // a list replaces the default, it does not extend it
	}
	if n.Tag == yaml.NodeTagNull || n.Decode(into.Addr().Interface()) != nil {
		r.fault(n, fmt.Sprintf("%s: want %s, not %s", strings.Join(path, "."), wanted(into.Kind()), describe(n)), "")
	}
}

func wanted(k reflect.Kind) string {
	switch k {
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

// fieldByTag returns the field of a struct with a JSON name.
func fieldByTag(v reflect.Value, name string) (reflect.Value, bool) {
	i := slices.Index(tags(v.Type()), name)
	if i < 0 {
		return reflect.Value{}, false
	}
	return v.Field(i), true
}

// tags lists the JSON names of the fields of a struct.
func tags(t reflect.Type) []string {
	names := make([]string, t.NumField())
	for i := range names {
		names[i] = t.Field(i).Tag.Get("json")
	}
	return names
}

// lookup returns the value at a path below a mapping, or the nearest one above.
func lookup(n *yaml.Node, path []string) *yaml.Node {
	for len(path) > 0 && n.Kind == yaml.MappingNode {
		i := slices.IndexFunc(n.Content, func(c *yaml.Node) bool { return c.Value == path[0] })
		if i < 0 || i%2 != 0 {
			return n
		}
		n, path = n.Content[i+1], path[1:]
	}
	return n
}
