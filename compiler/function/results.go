package function

import (
	"fmt"
	"strconv"

	"sigs.k8s.io/kustomize/kyaml/fn/framework"
	"sigs.k8s.io/kustomize/kyaml/yaml"

	"github.com/hapsnap/hapsnap/compiler/diag"
)

// The tags of results. Lines are those of files that the function read itself; of
// items only the field is known, for they were written anew since.
const (
	hintTag   = "hint"
	lineTag   = "line"
	columnTag = "column"
)

// result is a diagnostic as a result of the list.
func (x items) result(d diag.Diagnostic) *framework.Result {
	r := &framework.Result{Message: d.Message, Severity: framework.Warning, Tags: map[string]string{}}
	if d.Severity == diag.Error {
		r.Severity = framework.Error
	}
	if d.Hint != "" {
		r.Tags[hintTag] = d.Hint
	}
	if (d.Object != diag.Object{}) {
		r.ResourceRef = &yaml.ResourceIdentifier{
			TypeMeta: yaml.TypeMeta{Kind: d.Object.Kind},
			NameMeta: yaml.NameMeta{Namespace: d.Object.Namespace, Name: d.Object.Name},
		}
	}
	if i, ok := x[d.Position.File]; ok {
		i.locate(r, d.Position)
	} else if d.Position.File != "" {
		r.File = &framework.File{Path: d.Position.File}
		if d.Position.Line > 0 {
			r.Tags[lineTag] = strconv.Itoa(d.Position.Line)
		}
		if d.Position.Column > 0 {
			r.Tags[columnTag] = strconv.Itoa(d.Position.Column)
		}
	}
	return r
}

// locate says which item, and which field of it, a result is about.
func (i item) locate(r *framework.Result, at diag.Position) {
	if r.ResourceRef != nil {
		r.ResourceRef.APIVersion = i.node.GetApiVersion()
	}
	if i.path != "" {
		r.File = &framework.File{Path: i.path, Index: i.index}
	}
	if path := fieldAt(i.text, at.Line, at.Column); path != "" {
		r.Field = &framework.Field{Path: path}
	}
}

// line is a diagnostic as people read it: with the file and the field of an item,
// whose line nobody knows.
func (x items) line(d diag.Diagnostic) string {
	i, ok := x[d.Position.File]
	if !ok {
		return d.String()
	}
	if field := fieldAt(i.text, d.Position.Line, d.Position.Column); field != "" {
		d.Message = fmt.Sprintf("%s: %s", field, d.Message)
	}
	d.Position = diag.Position{File: i.path}
	return d.String()
}
