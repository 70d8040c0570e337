package manifests

import (
	"cmp"
	"fmt"
	"time"

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

// Problem is a document, or a part of one, that could not be taken as an
// object. Kind, Namespace and Name are empty where they are not known.
type Problem struct {
	Position              Position
	Kind, Namespace, Name string
	Message               string
	Hint                  string
}

// Object is one Kubernetes object. Namespace is "default" where the manifest
// of a namespaced kind leaves it out. Created is zero, and UID and
// ResourceVersion are empty, for objects that did not come out of a cluster.
// The maps must not be changed.
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

// Identity returns a comparable value that is the same for two objects if one
// [Reader] read them from the same text, so that what was made of the one is
// true of the other, except for its position.
func (o Object) Identity() any { return o.node }

// String returns "Kind namespace/name".
func (o Object) String() string {
	if o.Namespace == "" {
		return o.Kind + " " + o.Name
	}
	return o.Kind + " " + o.Namespace + "/" + o.Name
}

// compare orders objects by what names them.
func (o Object) compare(p Object) int {
	return cmp.Or(o.GVK().Compare(p.GVK()), cmp.Compare(o.Namespace, p.Namespace), cmp.Compare(o.Name, p.Name))
}

// place says where a parsed document is: its file, and the lines before it.
type place struct {
	file  string
	lines int
}

// at returns the position of a node of the document.
func (p place) at(n *yaml.Node) Position {
	return Position{File: p.file, Line: p.lines + n.Line, Column: n.Column}
}
