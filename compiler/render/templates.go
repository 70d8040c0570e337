package render

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"text/template"
	"text/template/parse"

	"github.com/hapsnap/hapsnap/compiler/diag"
	"github.com/hapsnap/hapsnap/internal/process"
	"github.com/hapsnap/hapsnap/snapshots"
)

// Template is one template file. Name is its path in the tree of templates,
// such as "haproxy/50-backend.cfg"; Path is how users know it.
type Template struct {
	Name, Path, Text string
}

// Templates are the files that rendering uses, sorted by name.
type Templates []Template

// ShippedPrefix is what the paths of shipped templates begin with.
const ShippedPrefix = "shipped:"

// Shipped reads the templates that hapsnap ships.
func Shipped(files fs.FS) (Templates, error) {
	return read(files, func(name string) string { return ShippedPrefix + name })
}

// Overlay reads the templates of a user's directory.
func Overlay(dir string) (Templates, error) {
	info, err := os.Stat(dir)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil, process.WithHint(fmt.Errorf("read templates: there is no directory %s: %w", dir, fs.ErrNotExist), "correct --templates, or make the directory: an empty one leaves the shipped templates as they are")
	case err == nil && !info.IsDir():
		return nil, process.WithHint(fmt.Errorf("read templates: %s is not a directory", dir), "name with --templates the directory that has haproxy/, maps/ and so on in it")
	}
	return read(os.DirFS(dir), func(name string) string { return filepath.Join(dir, filepath.FromSlash(name)) })
}

// Under returns the templates with the overlay on top: a file of the same name
// replaces, any other one is added.
func (t Templates) Under(overlay Templates) Templates {
	byName := map[string]Template{}
	for _, file := range slices.Concat(t, overlay) {
		byName[file.Name] = file
	}
	out := make(Templates, 0, len(byName))
	for _, file := range byName {
		out = append(out, file)
	}
	return out.sorted()
}

// Digest names the templates by their names and texts.
func (t Templates) Digest() snapshots.Digest {
	h := sha256.New()
	for _, file := range t {
		fmt.Fprintf(h, "%q %q\n", file.Name, file.Text)
	}
	return snapshots.Digest("sha256:" + hex.EncodeToString(h.Sum(nil)))
}

func (t Templates) sorted() Templates {
	slices.SortFunc(t, func(a, b Template) int { return cmp.Compare(a.Name, b.Name) })
	return t
}

// read reads a tree of templates. A file that no rule of [areaOf] knows is an
// error, since its author expects it to do something; hidden files and
// Markdown are passed over.
func read(files fs.FS, pathOf func(string) string) (Templates, error) {
	var out Templates
	err := walk(files, ".", func(name string) error {
		if areaOf(name) == noArea {
			return process.WithHint(fmt.Errorf("%s is none of haproxy/*.cfg, maps/*.map, files/*, partials/*.cfg, extend/*.cfg", pathOf(name)), "name with --templates a directory that has these in it, and nothing else")
		}
		text, err := fs.ReadFile(files, name)
		out = append(out, Template{Name: name, Path: pathOf(name), Text: string(text)})
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("read templates: %w", err)
	}
	return out.sorted(), nil
}

// walk calls visit for each file below dir. Unlike [fs.WalkDir] it follows
// symbolic links to directories, which a mounted ConfigMap is made of; there is
// no circle to fall into, since templates are two levels deep.
func walk(files fs.FS, dir string, visit func(name string) error) error {
	entries, err := fs.ReadDir(files, dir)
	if err != nil {
		return err
	}
	for _, entry := range entries {
		name := path.Join(dir, entry.Name())
		if strings.HasPrefix(entry.Name(), ".") || path.Ext(name) == ".md" {
			continue
		}
		info, err := fs.Stat(files, name)
		if err != nil {
			return err
		}
		next := visit
		if info.IsDir() && dir == "." {
			next = func(name string) error { return walk(files, name, visit) }
		}
		if err := next(name); err != nil {
			return err
		}
	}
	return nil
}

// area is the part of the tree that a template is in. It decides what happens to the template's output.
type area int

const (
	noArea    area = iota
	section        // a section of haproxy.cfg
	mapFile        // a map
	otherFile      // a file of its own
	partial        // nothing by itself
)

func areaOf(name string) area {
	dir, base := path.Split(name)
	ext := path.Ext(base)
	switch {
	case dir == "haproxy/" && ext == ".cfg":
		return section
	case dir == "maps/" && ext == ".map":
		return mapFile
	case dir == "files/":
		return otherFile
	case (dir == "partials/" || dir == "extend/") && ext == ".cfg":
		return partial
	}
	return noArea
}

// loop says how often a template is executed.
type loop string

const (
	once            loop = ""
	eachBackend     loop = "backend"
	eachHost        loop = "host"
	eachCertificate loop = "certificate"
	eachListener    loop = "listener"
	eachBind        loop = "bind"
	eachConnections loop = "connections" // a backend of those
)

// loopForm is how a template asks to be executed for each of something.
var loopForm = regexp.MustCompile(`^\{\{-? ?/\* *each ([a-z]+) *\*/ ?-?\}\}`)

// Set is a set of templates that have been parsed. It does not change, and may
// be used by several goroutines.
type Set struct {
	files  Templates
	loops  []loop // of files, by index
	parsed *template.Template
	digest snapshots.Digest
}

// Digest returns the digest of the templates' texts.
func (s *Set) Digest() snapshots.Digest { return s.digest }

// Contains reports whether one of the templates holds a text.
func (s *Set) Contains(text []byte) bool {
	return slices.ContainsFunc(s.files, func(t Template) bool { return strings.Contains(t.Text, string(text)) })
}

// Parse parses templates, and prepares them for [Set.Render]. What is wrong
// with them is returned as diagnostics, and then there is no Set.
func Parse(files Templates) (*Set, []diag.Diagnostic) {
	p := parser{funcs: functions(), trees: map[string]*parse.Tree{}, files: files}
	s := &Set{files: files, digest: files.Digest()}
	for i := range files {
		s.loops = append(s.loops, p.loop(i))
		p.parse(i)
	}
	if len(p.found) == 0 { // a file that does not parse defines nothing
		p.checkReferences()
	}
	if len(p.found) > 0 {
		return nil, diag.Sort(p.found)
	}
	s.parsed = template.New("").Option("missingkey=error").Funcs(p.funcs).Funcs(template.FuncMap{ // bound when a set is rendered
		funcCheck: func(v any) any { return v },
		funcEnter: func(int, any) string { return "" },
	})
	for _, name := range slices.Sorted(maps.Keys(p.trees)) {
		tree := p.trees[name]
		i := p.index(tree.ParseName)
		marker{file: i, text: files[i].Text}.list(tree.Root, 0)
		if _, err := s.parsed.AddParseTree(name, tree); err != nil {
			p.fault(i, 0, 0, err.Error(), "")
		}
	}
	return s, diag.Sort(p.found)
}

// parser collects the trees of several files.
type parser struct {
	files Templates
	funcs template.FuncMap
	trees map[string]*parse.Tree
	found []diag.Diagnostic
}

// fault adds a diagnostic for a place in the i-th file.
func (p *parser) fault(i, line, column int, message, hint string) {
	at := diag.Position{File: p.files[i].Path, Line: line, Column: column}
	p.found = append(p.found, diag.Diagnostic{Severity: diag.Error, Position: at, Message: message, Hint: hint})
}

func (p *parser) index(name string) int {
	return slices.IndexFunc(p.files, func(t Template) bool { return t.Name == name })
}

// loop reads how often the i-th file is to be executed.
func (p *parser) loop(i int) loop {
	m := loopForm.FindStringSubmatch(p.files[i].Text)
	if m == nil {
		return once
	}
	l := loop(m[1])
	switch {
	case !slices.Contains([]loop{eachBackend, eachHost, eachCertificate, eachListener, eachBind, eachConnections}, l):
		p.fault(i, 1, 1, fmt.Sprintf("each %s is not known", l), "use each backend, each host, each certificate, each listener, each bind or each connections")
	case areaOf(p.files[i].Name) != section && l != eachListener && l != eachBind:
		p.fault(i, 1, 1, "only templates in haproxy/ can be executed with each", "use range")
	}
	return l
}

// builtins are the functions of text/template. Its html, js and urlquery are
// not for configurations.
var builtins = map[string]any{
	"and": true, "or": true, "not": true, "len": true, "index": true, "slice": true, "call": true, "print": true,
	"printf": true, "eq": true, "ne": true, "lt": true, "le": true, "gt": true, "ge": true,
}

// parse parses the i-th file into trees: its own, and one for each define in it.
func (p *parser) parse(i int) {
	file := p.files[i]
	if at := strings.IndexByte(file.Text, 0); at >= 0 {
		p.fault(i, 1+strings.Count(file.Text[:at], "\n"), 0, "holds a NUL character", "delete it")
		return
	}
	trees, err := parse.Parse(file.Name, file.Text, "", "", p.funcs, builtins)
	if err != nil {
		line, column, message := splitError(file.Name, err)
		p.fault(i, line, column, message, "")
		return
	}
	for _, name := range slices.Sorted(maps.Keys(trees)) {
		tree := trees[name]
		if other, ok := p.trees[name]; ok {
			p.fault(i, 0, 0, fmt.Sprintf("defines %q, which %s defines too", name, p.files[p.index(other.ParseName)].Path), "rename one of them")
			continue
		}
		p.trees[name] = tree
	}
}

// checkReferences reports templates that are used and do not exist.
func (p *parser) checkReferences() {
	for _, name := range slices.Sorted(maps.Keys(p.trees)) {
		tree := p.trees[name]
		visit(tree.Root, func(n *parse.TemplateNode) {
			if p.trees[n.Name] == nil {
				p.fault(p.index(tree.ParseName), n.Line, 0, fmt.Sprintf("there is no template %q", n.Name), "")
			}
		})
	}
}

// visit calls f for each template action below a list.
func visit(list *parse.ListNode, f func(*parse.TemplateNode)) {
	if list == nil {
		return
	}
	for _, n := range list.Nodes {
		switch n := n.(type) {
		case *parse.TemplateNode:
			f(n)
		case *parse.IfNode:
			visit(n.List, f)
			visit(n.ElseList, f)
		case *parse.WithNode:
			visit(n.List, f)
			visit(n.ElseList, f)
		case *parse.RangeNode:
			visit(n.List, f)
			visit(n.ElseList, f)
		}
	}
}

// placeOf matches what errors of text/template begin with.
var placeOf = regexp.MustCompile(`^template: ?([^ ]*?):(\d+)(?::(\d+))?: (.*)$`)

// splitError takes the place out of an error of text/template. The column is
// that of the error, from 1, or 0.
func splitError(name string, err error) (line, column int, message string) {
	m := placeOf.FindStringSubmatch(err.Error())
	if m == nil || m[1] != name {
		return 0, 0, err.Error()
	}
	line, _ = strconv.Atoi(m[2])
	if m[3] != "" {
		column, _ = strconv.Atoi(m[3])
		column++ // text/template counts from 0
	}
	return line, column, m[4]
}

// isRefusal reports whether a function refused a value. Any other error of an
// execution is a mistake in the template, or comes from one.
func isRefusal(err error) bool {
	var exec template.ExecError
	if !errors.As(err, &exec) || errors.Is(err, errNotScalar) {
		return false
	}
	if _, ok := errors.AsType[mistake](err); ok {
		return false
	}
	return errors.Unwrap(exec.Err) != nil
}
