// Package migrate rewrites the annotations of other ingress controllers into ours. A [Dialect] has the
// rules for one controller: which annotations have an equivalent, how a value is translated, and what
// to do about the others. docs/reference/migration.md is generated from the rules.
//
// It never guesses: an annotation whose value has no equivalent stays, and is reported with its place.
// Package options reads what was translated, so that the compiler accepts each annotation that is
// written.
//
// # Decisions
//
// Migration adds before it removes. The annotations of another controller stay beside ours until the
// Ingress moves to our class, which it does only if everything was translated: at no moment is a route
// served without its protection.
package migrate

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"sigs.k8s.io/kustomize/kyaml/yaml"

	"github.com/hapsnap/hapsnap/compiler/diag"
	"github.com/hapsnap/hapsnap/compiler/options"
	"github.com/hapsnap/hapsnap/internal/manifests"
)

// Result is the result for a directory of manifests.
type Result struct {
	Files    []File            // that changed, by path
	Findings []diag.Diagnostic // findings are sorted
	Objects  int               // that changed
}

// File is a file with rewritten objects. Path is relative to the directory that
// was read, or the name of the file itself.
type File struct {
	Path    string
	Content []byte
}

// Directory rewrites the objects in a directory and below it, or in one file, in memory. The error is about
// what could not be read.
func Directory(dir string, o Options) (Result, error) {
	var r Result
	set, err := manifests.Read(dir)
	if err != nil {
		return r, err
	}
	for _, p := range set.Problems {
		r.Findings = append(r.Findings, diag.Diagnostic{
			Severity: diag.Error, Position: diag.Position{File: p.Position.File, Line: p.Position.Line, Column: p.Position.Column},
			Object:  diag.Object{Kind: p.Kind, Namespace: p.Namespace, Name: p.Name},
			Message: p.Message, Hint: p.Hint,
		})
	}
	files, err := manifests.Files(dir)
	if err != nil {
		return r, err
	}
	if o.set, err = readSet(files); err != nil {
		return r, err
	}
	for _, name := range files {
		content, changed, err := manifests.EditFile(name, func(object *yaml.Node, before int) bool {
			changed, findings := Rewrite(object, o)
			for _, f := range append(findings, beside(object)...) {
				r.Findings = append(r.Findings, f.diagnostic(name, before))
			}
			if changed {
				r.Objects++
			}
			return changed
		})
		if err != nil {
			return r, err
		}
		if changed {
			r.Files = append(r.Files, File{relative(dir, name), content})
		}
	}
	for _, d := range dialects {
		if o.set.served[d.Name] {
			r.Findings = append(r.Findings, d.defaults...)
		}
	}
	r.Findings = diag.Sort(r.Findings)
	return r, nil
}

// diagnostic returns the finding with its position in a file.
func (f Finding) diagnostic(file string, before int) diag.Diagnostic {
	return diag.Diagnostic{
		Severity: f.Severity, Position: diag.Position{File: file, Line: before + f.Line, Column: f.Column},
		Object: f.Object, Message: f.Message, Hint: f.Hint,
	}
}

// relative returns the path of a file below the directory that was read.
func relative(dir, name string) string {
	path, err := filepath.Rel(dir, name)
	if err != nil || path == "." {
		return filepath.Base(name)
	}
	return path
}

// Write writes the files below a directory, which may be the one that was read.
// Each is replaced as a whole or not at all. If ctx ends, the remaining files stay as they are.
func (r Result) Write(ctx context.Context, dir string) error {
	for _, f := range r.Files {
		if err := ctx.Err(); err != nil {
			return err
		}
		// The new file has the permissions of the old one.
		path := filepath.Join(dir, f.Path)
		mode := fs.FileMode(0o644)
		if info, err := os.Stat(path); err == nil {
			mode = info.Mode().Perm()
		}
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			return fmt.Errorf("write manifests: %w", err)
		}
		// Files that killed processes left in the folder are removed.
		names, _ := filepath.Glob(filepath.Join(filepath.Dir(path), unfinished)) // the pattern is valid unless the name of the folder is not
		for _, name := range names {
			if info, err := os.Stat(name); err == nil && info.Mode().IsRegular() && time.Since(info.ModTime()) > leftover {
				_ = os.Remove(name) // the next call tries again
			}
		}
		fresh, err := os.CreateTemp(filepath.Dir(path), unfinished)
		if err != nil {
			return fmt.Errorf("write manifests: %w", err)
		}
		_, err = fresh.Write(f.Content)
		if err = errors.Join(err, fresh.Chmod(mode), fresh.Sync(), fresh.Close()); err == nil {
			err = os.Rename(fresh.Name(), path)
		}
		if err != nil {
			_ = os.Remove(fresh.Name())
			return fmt.Errorf("write manifests: %w", err)
		}
	}
	return nil
}

// unfinished is the pattern of files that are being written. leftover is the age from which such a file belongs
// to a killed process.
const (
	unfinished = ".migrate-*"
	leftover   = time.Minute
)

// classAnnotation is the old annotation with the class of an Ingress.
const classAnnotation = "kubernetes.io/ingress.class"

// Options say how objects are rewritten.
type Options struct {
	// Class is the ingressClassName for Ingresses that were translated completely. They lose the annotations of
	// the other controller, and their old class. "" keeps all classes.
	Class string
	// Remove removes every annotation that was translated, even if the object keeps its class. If the other
	// controller still serves the object, it then serves it without them.
	Remove bool

	set *Set // the manifests that the object is among
}

// Finding is a finding on an annotation of an object. Line and Column are relative to the object's document.
type Finding struct {
	Severity      diag.Severity
	Object        diag.Object
	Line, Column  int
	Message, Hint string
}

// Rewrite rewrites an object if it is an Ingress or a Service with annotations
// of a [Dialect]. It reports whether the object has changed.
func Rewrite(n *yaml.Node, o Options) (changed bool, findings []Finding) {
	x := rewriting{options: o, node: n}
	if !x.read() {
		return false, nil
	}
	var changes []change
	for _, d := range dialects {
		c := d.convert(x.object)
		for _, f := range c.found {
			x.report(f)
		}
		changes = append(changes, c)
	}
	moves := x.moves(changes)
	for _, c := range changes {
		x.write(c, o.Remove || moves)
	}
	if moves {
		x.changed = true
		spec := child(x.node, "spec")
		if spec != nil && spec.Kind == yaml.MappingNode {
			setText(spec, "ingressClassName", x.options.Class)
			annotations := child(child(x.node, "metadata"), "annotations")
			if i := index(annotations, classAnnotation); i >= 0 {
				annotations.Content = slices.Delete(annotations.Content, i, i+2)
			}
		}
	}
	return x.changed, x.findings
}

// moves reports whether the Ingress gets the class of the options. An Ingress that would lose something keeps
// its class, and the other controller goes on serving it.
func (x *rewriting) moves(changes []change) bool {
	isTheirs := func(c change) bool { return len(c.added)+len(c.removed)+len(c.found) > 0 }
	hasTheirClass := slices.ContainsFunc(dialects, func(d Dialect) bool { return d.translates() && d.hasClass(x.object.class) })
	if x.options.Class == "" || x.object.kind != "Ingress" || (!slices.ContainsFunc(changes, isTheirs) && !hasTheirClass) {
		return false
	}
	left := slices.ContainsFunc(x.findings, func(f Finding) bool { return f.Severity == diag.Error })
	if left {
		x.report(found{finding{diag.Warning, "", "keeps its class, for not everything could be translated", ""}, ""})
		return false
	}
	if service, annotation := x.unguarded(changes); service != "" {
		x.report(found{finding{
			diag.Warning, "", "keeps its class, for annotation " + annotation + " of Service " + service + " could not be translated",
			"hapsnap would close the routes to this Service",
		}, ""})
		return false
	}
	return true
}

// unguarded returns a Service to which the Ingress leads, and its annotation that protects something and is not translated.
func (x *rewriting) unguarded(changes []change) (service, annotation string) {
	ofIngress := maps.Clone(x.object.annotations)
	for _, c := range changes {
		c.addTo(ofIngress)
	}
	names := []string{text(child(child(child(x.node, "spec"), "defaultBackend"), "service"), "name")}
	for _, p := range x.object.paths {
		names = append(names, p.service)
	}
	for _, name := range names {
		all := maps.Clone(x.options.set.annotationsOf(x.object.namespace, name))
		if len(all) == 0 {
			continue
		}
		o := &object{kind: "Service", namespace: x.object.namespace, name: name, set: x.options.set, annotations: all}
		for _, d := range dialects {
			d.convert(o).addTo(all)
		}
		if left := FindUnheededOfService(all, ofIngress); len(left) > 0 {
			return x.object.namespace + "/" + name, left[0].Annotation
		}
	}
	return "", ""
}

// addTo adds our annotations to those of an object, if it does not have them.
func (x change) addTo(annotations map[string]string) {
	for _, a := range x.added {
		if _, there := annotations[options.Prefix+a.name]; !there {
			annotations[options.Prefix+a.name] = a.value
		}
	}
}

// Dialects returns all known dialects. Those at the end have no rules.
func Dialects() []Dialect {
	return append([]Dialect{nginx(), haproxytech(), haproxyIngress()}, strangers()...)
}

// rewriting is one call of [Rewrite].
type rewriting struct {
	options  Options
	node     *yaml.Node
	ref      diag.Object
	object   *object
	pathNode []*yaml.Node // paths of the object
	changed  bool
	findings []Finding
}

// read reads what the rules need. It reports whether the object may have annotations of an ingress controller.
func (x *rewriting) read() bool {
	kind, metadata := text(x.node, "kind"), child(x.node, "metadata")
	if kind != "Ingress" && kind != "Service" {
		return false
	}
	x.ref = objectOf(x.node, kind)
	x.object = &object{kind: kind, namespace: x.ref.Namespace, name: x.ref.Name, set: x.options.set, annotations: map[string]string{}}
	annotations := child(metadata, "annotations")
	for i := 0; annotations != nil && i+1 < len(annotations.Content); i += 2 {
		x.object.annotations[annotations.Content[i].Value] = annotations.Content[i+1].Value
	}
	spec := child(x.node, "spec")
	x.object.class = text(spec, "ingressClassName")
	if class := x.object.annotations[classAnnotation]; class != "" {
		x.object.class = class
	}
	tls := child(spec, "tls")
	x.object.hasTLS = tls != nil && len(tls.Content) > 0
	for _, entry := range items(tls) {
		for _, host := range items(child(entry, "hosts")) {
			x.object.tlsHosts = append(x.object.tlsHosts, host.Value)
		}
	}
	for _, rule := range items(child(spec, "rules")) {
		for _, p := range items(child(child(rule, "http"), "paths")) {
			x.pathNode = append(x.pathNode, p)
			x.object.paths = append(x.object.paths, pathEdit{
				path: text(p, "path"), kind: text(p, "pathType"), host: text(rule, "host"), service: text(child(child(p, "backend"), "service"), "name"),
				port: portOf(child(child(p, "backend"), "service")),
			})
		}
	}
	return true
}

// write writes the annotations into which one dialect was translated. It keeps our annotations that exist
// already.
func (x *rewriting) write(c change, remove bool) {
	if !remove {
		c.removed = nil
	}
	c.added = slices.DeleteFunc(c.added, func(a annotation) bool {
		_, there := x.object.annotations[options.Prefix+a.name]
		return there
	})
	if len(c.removed)+len(c.added) > 0 {
		x.changed = true
		x.writeAnnotations(c)
	}
	for i, p := range x.object.paths {
		switch {
		case p.expression && remove && text(x.pathNode[i], "pathType") != "ImplementationSpecific":
			x.changed = true
			setText(x.pathNode[i], "pathType", "ImplementationSpecific")
		case p.prefix == "" || text(x.pathNode[i], "path") == p.prefix:
		case remove:
			x.changed = true
			setText(x.pathNode[i], "path", p.prefix)
			setText(x.pathNode[i], "pathType", "Prefix")
		default:
			x.report(found{finding{diag.Warning, "", fmt.Sprintf("the path %q becomes the prefix %q when the Ingress moves", p.path, p.prefix), "until then only the other controller can serve it"}, ""})
		}
	}
}

// report adds a finding, at the place of its annotation.
func (x *rewriting) report(f found) {
	at := x.node
	annotations := child(child(x.node, "metadata"), "annotations")
	for i := 0; annotations != nil && i+1 < len(annotations.Content); i += 2 {
		if annotations.Content[i].Value == f.annotation {
			at = annotations.Content[i]
		}
	}
	message := f.message
	if f.annotation != "" {
		message = f.annotation + ": " + message
	}
	x.findings = append(x.findings, Finding{f.severity, x.ref, at.Line, at.Column, message, f.hint})
}

// writeAnnotations writes our annotations in the place of the first one that is removed, or at the end.
func (x *rewriting) writeAnnotations(c change) {
	annotations := x.annotationsNode()
	var fresh []*yaml.Node
	for _, a := range c.added {
		name := options.Prefix + a.name
		x.object.annotations[name] = a.value
		// A value stays a string, in block style if it has several lines.
		n := &yaml.Node{Kind: yaml.ScalarNode, Tag: yaml.NodeTagString, Value: a.value, Style: yaml.DoubleQuotedStyle}
		if strings.Contains(a.value, "\n") {
			n.Style = yaml.LiteralStyle
		}
		fresh = append(fresh, yaml.NewStringRNode(name).YNode(), n)
	}
	var out []*yaml.Node
	comment := "" // of a removed annotation; the next one gets it
	add := func(pairs ...*yaml.Node) {
		if len(pairs) > 0 && comment != "" {
			pairs[0].HeadComment, comment = strings.TrimSuffix(comment+"\n"+pairs[0].HeadComment, "\n"), ""
		}
		out = append(out, pairs...)
	}
	for i := 0; i+1 < len(annotations.Content); i += 2 {
		key, value := annotations.Content[i], annotations.Content[i+1]
		if !slices.Contains(c.removed, key.Value) {
			add(key, value)
			continue
		}
		comment = strings.TrimPrefix(comment+"\n"+key.HeadComment, "\n")
		add(fresh...)
		fresh = nil
	}
	add(fresh...)
	annotations.Content = out
}

// annotationsNode returns the annotations of the object. It adds the field if it is missing.
func (x *rewriting) annotationsNode() *yaml.Node {
	metadata := child(x.node, "metadata")
	if n := child(metadata, "annotations"); n != nil && n.Kind == yaml.MappingNode {
		return n
	}
	n := &yaml.Node{Kind: yaml.MappingNode, Tag: yaml.NodeTagMap}
	if i := index(metadata, "annotations"); i >= 0 { // null
		metadata.Content[i+1] = n
	} else {
		metadata.Content = append(metadata.Content, yaml.NewStringRNode("annotations").YNode(), n)
	}
	return n
}

// index returns the position of a key in a mapping, or -1.
func index(n *yaml.Node, key string) int {
	if n == nil || n.Kind != yaml.MappingNode {
		return -1
	}
	for i := 0; i+1 < len(n.Content); i += 2 {
		if n.Content[i].Value == key {
			return i
		}
	}
	return -1
}

// child returns a field of a mapping, or nil.
func child(n *yaml.Node, key string) *yaml.Node {
	if i := index(n, key); i >= 0 {
		return n.Content[i+1]
	}
	return nil
}

// text returns the value of a field, or "".
func text(n *yaml.Node, key string) string {
	if c := child(n, key); c != nil {
		return c.Value
	}
	return ""
}

// items returns the elements of a list.
func items(n *yaml.Node) []*yaml.Node {
	if n == nil || n.Kind != yaml.SequenceNode {
		return nil
	}
	return n.Content
}

// setText sets a field of a mapping.
func setText(n *yaml.Node, key, value string) {
	if i := index(n, key); i >= 0 {
		n.Content[i+1].SetString(value)
		return
	}
	n.Content = append(n.Content, yaml.NewStringRNode(key).YNode(), yaml.NewStringRNode(value).YNode())
}
