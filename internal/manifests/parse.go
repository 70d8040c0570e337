package manifests

import (
	"bytes"
	"errors"
	"io"
	"regexp"
	"strconv"
	"strings"

	"sigs.k8s.io/kustomize/kyaml/yaml"
)

// document is what one document of a file holds. It depends on the text alone:
// all positions are relative to it, so that it can be kept while the lines
// before it change.
type document struct {
	objects  []Object
	problems []Problem
}

// parseDocument reads one YAML document.
func parseDocument(text []byte) *document {
	var doc document
	var root, rest yaml.Node
	dec := yaml.NewDecoder(bytes.NewReader(text))
	err := dec.Decode(&root)
	if err == nil {
		// What follows the value must be nothing: not a second one.
		if err = dec.Decode(&rest); err == nil {
			err = errTwoValues
		}
	}
	switch {
	case !errors.Is(err, io.EOF):
		doc.problems = append(doc.problems, yamlProblem(err))
	case len(root.Content) > 0:
		doc.addValue(root.Content[0])
	}
	return &doc
}

var errTwoValues = errors.New("two values without --- between them")

// parseStream reads a JSON file.
func parseStream(text []byte) *document {
	var doc document
	values, problem := parseJSON(text)
	for _, value := range values {
		doc.addValue(value)
	}
	if problem != nil {
		doc.problems = append(doc.problems, *problem)
	}
	return &doc
}

// yamlLine finds the line in an error of the YAML parser.
var yamlLine = regexp.MustCompile(`^yaml: (?:line (\d+): )?`)

// yamlProblem turns an error of the YAML parser into a problem with a place.
func yamlProblem(err error) Problem {
	message := err.Error()
	line := 1
	if m := yamlLine.FindStringSubmatch(message); m != nil {
		message = message[len(m[0]):]
		if n, err := strconv.Atoi(m[1]); err == nil {
			line = n
		}
	}
	if strings.Contains(message, "<document start>") {
		message = errTwoValues.Error()
	}
	return Problem{
		Position: Position{Line: line}, Message: "not YAML: " + message,
		Hint: "this document was left out; the others of the file were read",
	}
}

// addValue adds the objects in a whole document.
func (d *document) addValue(n *yaml.Node) {
	n, err := expand(n)
	if err != nil {
		d.problem(n, Object{}, err.Error(), "write the values out")
		return
	}
	if n.Tag != yaml.NodeTagNull {
		d.add(n, GVK{})
	}
}

// add adds the object of a node, or those of a List. The items of a typed list,
// such as IngressList, may leave out what the list says of them.
func (d *document) add(n *yaml.Node, inherited GVK) {
	if n.Kind != yaml.MappingNode {
		d.problem(n, Object{}, "not a Kubernetes object: "+kindOf(n)+", not a mapping", "an object has apiVersion, kind and metadata.name")
		return
	}
	o := newObject(n, inherited)
	if items, ok := listItems(o); ok {
		element := GVK{o.APIVersion, strings.TrimSuffix(o.Kind, "List")}
		if o.Kind == "List" {
			element = GVK{}
		}
		for _, item := range items {
			d.add(item, element)
		}
		return
	}
	if missing := o.missing(); missing != "" {
		d.problem(n, o, "not a Kubernetes object: "+missing+" is missing", "an object has apiVersion, kind and metadata.name")
		return
	}
	d.objects = append(d.objects, o)
}

// listItems returns the items if the object is a list of objects.
func listItems(o Object) ([]*yaml.Node, bool) {
	_, items := field(o.node, "items")
	if !strings.HasSuffix(o.Kind, "List") || items == nil {
		return nil, false
	}
	return items.Content, items.Kind == yaml.SequenceNode || items.Tag == yaml.NodeTagNull
}

// missing names the first field that every object must have and this has not.
func (o Object) missing() string {
	switch {
	case o.APIVersion == "":
		return "apiVersion"
	case o.Kind == "":
		return "kind"
	case o.Name == "":
		return "metadata.name"
	}
	return ""
}

// problem adds a finding at the start of a node.
func (d *document) problem(n *yaml.Node, o Object, message, hint string) {
	p := Problem{Kind: o.Kind, Namespace: o.Namespace, Name: o.Name, Message: message, Hint: hint}
	if n != nil {
		p.Position = Position{Line: n.Line, Column: n.Column}
	}
	d.problems = append(d.problems, p)
}
