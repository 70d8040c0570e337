// Package manifests reads Kubernetes objects from files, and keeps the place in the file of everything
// it reads.
//
// A directory is read whole: every .yaml, .yml and .json file below it, each with any number of documents,
// Lists expanded. A document that is not an object becomes a [Problem] and harms only itself. A file that
// cannot be read makes the whole read fail: objects that are merely out of reach must never look deleted.
// Callers decode the kinds that they know with [Object.Decode].
//
// [Watch] says when a directory should be read again.
package manifests

import (
	"cmp"
	"fmt"
	"strconv"
	"strings"
	"time"
	"unique"

	"sigs.k8s.io/kustomize/kyaml/yaml"
)

// Position is a place in a file, named as the caller named the directory.
// Line and Column count from 1; 0 is unknown.
type Position struct {
	File         string
	Line, Column int
}

// String returns "file:line:col" without the parts that are unknown.
func (p Position) String() string {
	switch {
	case p.Line == 0:
		return p.File
	case p.Column == 0:
		return fmt.Sprintf("%s:%d", p.File, p.Line)
	}
	return fmt.Sprintf("%s:%d:%d", p.File, p.Line, p.Column)
}

// Compare orders positions by file, line and column.
func (p Position) Compare(o Position) int {
	return cmp.Or(cmp.Compare(p.File, o.File), cmp.Compare(p.Line, o.Line), cmp.Compare(p.Column, o.Column))
}

// Set is what a directory holds.
type Set struct {
	Objects  []Object  // by group, version, kind, namespace and name; no two the same
	Problems []Problem // by position
}

// Problem is a document, or a part of one, that is not a valid object. Kind, Namespace and Name are empty if
// they are not known.
type Problem struct {
	Position              Position
	Kind, Namespace, Name string
	Message               string
	Hint                  string
}

// Object is one Kubernetes object. Namespace is "default" if the manifest of a namespaced kind leaves it out.
// Created is zero, and UID and ResourceVersion are empty, for objects that do not come from a cluster. The maps
// must not be changed.
type Object struct {
	APIVersion, Kind     string
	Namespace, Name      string
	UID, ResourceVersion string
	Created              time.Time
	Labels, Annotations  map[string]string

	node  *yaml.Node // a mapping
	place place
}

// GVK names an API: group and version, such as "networking.k8s.io/v1", and kind.
type GVK struct {
	APIVersion, Kind string
}

// String returns "apiVersion Kind".
func (g GVK) String() string { return g.APIVersion + " " + g.Kind }

// Compare orders by apiVersion, then kind.
func (g GVK) Compare(o GVK) int {
	return cmp.Or(cmp.Compare(g.APIVersion, o.APIVersion), cmp.Compare(g.Kind, o.Kind))
}

// GVK returns the object's API.
func (o Object) GVK() GVK { return GVK{o.APIVersion, o.Kind} }

// Identity returns a comparable value. It is the same for two objects if one [Reader] read them from the same
// text. Then results for one object hold for the other, except for its position.
func (o Object) Identity() any { return o.node }

// Forget drops the content of the object, which takes ten times the memory of its text. It is for a caller that has
// decoded the object and finds the result by its Identity: later reads of the same text return the object without its
// content. Its names, labels and annotations stay.
func (o Object) Forget() { o.node.Content = nil }

// String returns "Kind namespace/name".
func (o Object) String() string {
	if o.Namespace == "" {
		return o.Kind + " " + o.Name
	}
	return o.Kind + " " + o.Namespace + "/" + o.Name
}

// compare orders objects by API, namespace and name.
func (o Object) compare(p Object) int {
	return cmp.Or(o.GVK().Compare(p.GVK()), cmp.Compare(o.Namespace, p.Namespace), cmp.Compare(o.Name, p.Name))
}

// place says where a parsed document is: its file, and the number of lines before it.
type place struct {
	file  string
	lines int
}

// at returns the position of a node of the document.
func (p place) at(n *yaml.Node) Position {
	return Position{File: p.file, Line: p.lines + n.Line, Column: n.Column}
}

// newObject reads the names of an object and what the API server records of it. Values of the wrong type count
// as absent here; [Object.Decode] reports them.
func newObject(n *yaml.Node, inherited GVK) Object {
	_, metadata := field(n, "metadata")
	o := Object{
		APIVersion:      orElse(text(n, "apiVersion"), inherited.APIVersion),
		Kind:            orElse(text(n, "kind"), inherited.Kind),
		Namespace:       text(metadata, "namespace"),
		Name:            text(metadata, "name"),
		UID:             text(metadata, "uid"),
		ResourceVersion: text(metadata, "resourceVersion"),
		Labels:          texts(metadata, "labels"),
		Annotations:     texts(metadata, "annotations"),
		node:            n,
	}
	if _, created := field(metadata, "creationTimestamp"); created != nil {
		// YAML takes an unquoted time for a value of its own kind.
		if t, err := time.Parse(time.RFC3339, created.Value); err == nil {
			o.Created = t.UTC()
		}
	}
	if o.Namespace == "" && isNamespaced(o.GVK()) {
		o.Namespace = "default"
	}
	return o
}

func orElse(s, fallback string) string {
	if s == "" {
		return fallback
	}
	return s
}

// text returns the string in a field, or "".
func text(n *yaml.Node, name string) string {
	if _, value := field(n, name); value != nil && isText(value) {
		return value.Value
	}
	return ""
}

// texts returns the strings in a mapping in a field, or nil.
func texts(n *yaml.Node, name string) map[string]string {
	_, m := field(n, name)
	if m == nil || m.Kind != yaml.MappingNode || len(m.Content) == 0 {
		return nil
	}
	out := make(map[string]string, len(m.Content)/2)
	for i := 0; i+1 < len(m.Content); i += 2 {
		if isText(m.Content[i+1]) {
			out[m.Content[i].Value] = m.Content[i+1].Value
		}
	}
	return out
}

// isNamespaced reports whether objects of an API are known to live in a namespace. It assumes nothing about
// kinds that this package does not know.
func isNamespaced(g GVK) bool {
	group, _, ok := strings.Cut(g.APIVersion, "/")
	if !ok {
		group = ""
	}
	switch group {
	case "":
		switch g.Kind {
		case "Service", "Secret", "ConfigMap", "Endpoints", "Pod", "ServiceAccount", "Event", "PersistentVolumeClaim", "ReplicationController":
			return true
		}
	case "networking.k8s.io", "extensions":
		return g.Kind == "Ingress" || g.Kind == "NetworkPolicy"
	case "discovery.k8s.io":
		return g.Kind == "EndpointSlice"
	case "apps", "batch", "autoscaling", "coordination.k8s.io":
		return true
	case "gateway.networking.k8s.io":
		return g.Kind != "GatewayClass"
	}
	return false
}

// Position returns where a field is. Path holds the names of fields as strings and the indices of lists as
// ints. A field with a plain value is where its value is; a field with a list or a mapping is where its name
// is. For a missing field it returns the place of the nearest parent that exists; without a path, the start of
// the object.
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

// child returns the value to which one step of a path leads, or nil, and its key if it is in a mapping.
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

// FieldPath writes a path as people do: spec.rules[0].host, with quotes around names that are not identifiers. Equal paths
// share their memory: thousands of objects have the same few, and what is known of each object names some of them.
func FieldPath(path []any) string {
	out := make([]byte, 0, 64) // this is called for every field of interest of every object
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
	return unique.Make(string(out)).Value()
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
