package manifests

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// listing is what a directory held at one moment.
type listing struct {
	wanted func(name string) bool // which files count
	dirs   []string               // that were looked into
	files  []file                 // sorted by path
}

// file is one file to read. Info is that of what a symbolic link leads to.
type file struct {
	path string
	info fs.FileInfo
}

// unchanged reports whether the same files, with the same content as far as
// the file system tells, are in both listings.
func (l listing) unchanged(o listing) bool {
	return slices.EqualFunc(l.files, o.files, func(a, b file) bool {
		return a.path == b.path && a.info.Size() == b.info.Size() &&
			a.info.ModTime().Equal(b.info.ModTime()) && os.SameFile(a.info, b.info)
	})
}

// isManifest reports whether a file is read because of its name.
// kustomization.yaml tells kustomize what to do; it is not an object.
func isManifest(name string) bool {
	switch filepath.Ext(name) {
	case ".yaml", ".yml", ".json":
		return !isHidden(name) && strings.TrimSuffix(name, filepath.Ext(name)) != "kustomization"
	}
	return false
}

// isHidden reports whether a name is left out, with all that is below it.
func isHidden(name string) bool { return strings.HasPrefix(name, ".") }

// list lists the wanted files in a directory and below it, or the one file that
// root names. Symbolic links are followed, since that is how ConfigMaps and
// git-sync publish, but no directory is entered twice.
func list(root string, wanted func(name string) bool) (listing, error) {
	l := listing{wanted: wanted}
	info, err := os.Stat(root)
	switch {
	case err != nil:
		return l, fmt.Errorf("read manifests: %w", err)
	case info.Mode().IsRegular():
		l.files = append(l.files, file{filepath.Clean(root), info})
		return l, nil
	case !info.IsDir():
		return l, fmt.Errorf("read manifests: %s is neither a directory nor a file", root)
	}
	if err := l.enter(filepath.Clean(root), map[string]bool{}); err != nil {
		return l, fmt.Errorf("read manifests: %w", err)
	}
	slices.SortFunc(l.files, func(a, b file) int { return strings.Compare(a.path, b.path) })
	return l, nil
}

// enter adds what is in a directory that has not been entered yet.
func (l *listing) enter(dir string, entered map[string]bool) error {
	resolved, err := filepath.EvalSymlinks(dir)
	if err != nil || entered[resolved] {
		return err
	}
	entered[resolved] = true
	entries, err := os.ReadDir(dir)
	if err != nil {
		return err
	}
	l.dirs = append(l.dirs, dir)
	for _, entry := range entries {
		if isHidden(entry.Name()) {
			continue
		}
		if err := l.add(filepath.Join(dir, entry.Name()), entered); err != nil {
			return err
		}
	}
	return nil
}

// add adds one entry of a directory. An entry that is gone by now is left out.
func (l *listing) add(path string, entered map[string]bool) error {
	info, err := os.Stat(path)
	if err == nil && info.IsDir() {
		err = l.enter(path, entered)
	} else if err == nil && info.Mode().IsRegular() && l.wanted(filepath.Base(path)) {
		l.files = append(l.files, file{path, info})
	}
	if errors.Is(err, fs.ErrNotExist) && (isGone(path) || !l.wanted(filepath.Base(path))) {
		return nil
	}
	return err
}

// isGone reports whether nothing is left under a name: not even a symbolic
// link that leads nowhere, as one does while its target is replaced.
func isGone(path string) bool {
	_, err := os.Lstat(path)
	return errors.Is(err, fs.ErrNotExist)
}
