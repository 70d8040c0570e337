package render

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"

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
			return fmt.Errorf("%s is none of haproxy/*.cfg, maps/*.map, files/*, partials/*.cfg, extend/*.cfg", pathOf(name))
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

// area is the part of the tree that a template is in, and so what becomes of
// what it writes.
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
