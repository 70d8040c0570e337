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
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"sigs.k8s.io/kustomize/kyaml/yaml"

	"github.com/hapsnap/hapsnap/compiler/diag"
	"github.com/hapsnap/hapsnap/internal/manifests"
)

// Result is the result for a directory of manifests.
type Result struct {
	Files    []File            // that changed, by path
	Findings []diag.Diagnostic // sorted
	Objects  int               // that changed
}

// File is a file with rewritten objects. Path is relative to the directory that
// was read, or the name of the file itself.
type File struct {
	Path    string
	Content []byte
}

// Directory rewrites the objects in a directory and below it, or in one file, in
// memory. The error names what could not be read.
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
			for _, f := range findings {
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
	if o.set.ofNginx && r.Objects > 0 {
		r.Findings = append(r.Findings, nginxDefaults...)
	}
	r.Findings = diag.Sort(r.Findings)
	return r, nil
}

// diagnostic gives the finding its place in a file.
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
// Each is replaced as a whole or not at all.
func (r Result) Write(dir string) error {
	for _, f := range r.Files {
		if err := replace(filepath.Join(dir, f.Path), f.Content); err != nil {
			return fmt.Errorf("write manifests: %w", err)
		}
	}
	return nil
}

// unfinished is how files are named while they are written, and leftover how old one is
// at least whose process was killed.
const (
	unfinished = ".migrate-*"
	leftover   = time.Minute
)

// removeLeftovers removes what killed processes left in a folder.
func removeLeftovers(folder string) {
	names, _ := filepath.Glob(filepath.Join(folder, unfinished)) // the pattern is valid unless the name of the folder is not
	for _, name := range names {
		if info, err := os.Stat(name); err == nil && info.Mode().IsRegular() && time.Since(info.ModTime()) > leftover {
			_ = os.Remove(name) // the next call removes what cannot be removed now
		}
	}
}

// replace replaces a file with another, which gets the same permissions.
func replace(path string, content []byte) error {
	mode := fs.FileMode(0o644)
	if info, err := os.Stat(path); err == nil {
		mode = info.Mode().Perm()
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return err
	}
	removeLeftovers(filepath.Dir(path))
	fresh, err := os.CreateTemp(filepath.Dir(path), unfinished)
	if err != nil {
		return err
	}
	_, err = fresh.Write(content)
	if err = errors.Join(err, fresh.Chmod(mode), fresh.Sync(), fresh.Close()); err == nil {
		err = os.Rename(fresh.Name(), path)
	}
	if err != nil {
		_ = os.Remove(fresh.Name())
	}
	return err
}
