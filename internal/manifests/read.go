package manifests

import (
	"bytes"
	"crypto/sha256"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"

	"golang.org/x/sync/errgroup"

	"github.com/hapsnap/hapsnap/internal/process"
)

// Read reads the manifests in a directory and below it, or in one file. It skips hidden files and directories.
// The error names what could not be read. It means that nothing is known of the objects, not that there are
// none.
func Read(dir string) (Set, error) { return new(Reader).Read(dir) }

// Reader reads directories again and again, and parses only the documents that changed. The zero Reader is
// ready. Only one goroutine may use it at a time.
type Reader struct {
	// Parsed gets each object of a document that was parsed, before the next documents are. It may decode it, and have it
	// [Object.Forget] its content, so that the contents of a whole directory are never there at the same time. It is called
	// once at a time. The object has no position yet, and may be one that is left out of the [Set].
	Parsed func(Object)

	parsed map[documentKey]*document
}

// documentKey names a document by its content.
type documentKey struct {
	json bool
	sum  [sha256.Size]byte
}

// maxReads bounds how often a directory that keeps changing is read again.
const maxReads = 5

// Read reads like the function [Read]. It reads a directory that changes meanwhile again, so that it does not
// miss a file that is being replaced.
func (r *Reader) Read(dir string) (Set, error) {
	before, err := list(dir, isManifest)
	for range maxReads {
		if err != nil {
			return Set{}, err
		}
		set, readErr := r.readFiles(before.files)
		var after listing
		if after, err = list(dir, isManifest); err == nil && before.unchanged(after) {
			return set, readErr
		}
		before = after
	}
	if err != nil {
		return Set{}, err
	}
	return r.readFiles(before.files)
}

// readFiles reads the files of a listing, and forgets documents that they no longer hold.
func (r *Reader) readFiles(files []file) (Set, error) {
	var parts []part
	for _, f := range files {
		data, err := os.ReadFile(f.path)
		if err != nil {
			return Set{}, fmt.Errorf("read manifests: %w", err)
		}
		parts = append(parts, partsOf(f.path, data, filepath.Ext(f.path) == ".json")...)
	}
	return r.set(parts), nil
}

// partsOf splits a file.
func partsOf(file string, data []byte, isJSON bool) []part {
	data = bytes.TrimPrefix(data, []byte("\xef\xbb\xbf"))
	var parts []part
	for _, c := range split(data, isJSON) {
		parts = append(parts, part{place{file, c.lines}, c.text, documentKey{isJSON, sha256.Sum256(c.text)}})
	}
	return parts
}

// set parses the new parts, and returns the content of all parts.
func (r *Reader) set(parts []part) Set {
	r.parse(parts)
	var set Set
	for _, p := range parts {
		set.add(r.parsed[p.key], p.at)
	}
	set.sort()
	return set
}

// part is one document of a file.
type part struct {
	at   place
	text []byte
	key  documentKey
}

// parse parses the new documents, on all processors, and keeps only those that still exist.
func (r *Reader) parse(parts []part) {
	parsed := make(map[documentKey]*document, len(parts))
	var missing []part
	for _, p := range parts {
		if _, ok := parsed[p.key]; ok {
			continue
		}
		parsed[p.key] = r.parsed[p.key]
		if parsed[p.key] == nil {
			missing = append(missing, p)
		}
	}
	documents := make([]*document, len(missing))
	var workers errgroup.Group
	var passing sync.Mutex
	workers.SetLimit(runtime.GOMAXPROCS(0))
	for i, p := range missing {
		workers.Go(func() error {
			documents[i] = parse(p.text, p.key.json)
			if r.Parsed != nil {
				passing.Lock()
				defer passing.Unlock()
				for _, o := range documents[i].objects {
					r.Parsed(o)
				}
			}
			return nil
		})
	}
	_ = workers.Wait() // parsing has no errors, only problems
	for i, p := range missing {
		parsed[p.key] = documents[i]
	}
	r.parsed = parsed
}

// split returns the parts of a file, which are parsed separately.
func split(data []byte, isJSON bool) []chunk {
	if isJSON {
		return []chunk{{text: data}}
	}
	return splitYAML(data)
}

func parse(text []byte, isJSON bool) *document {
	if isJSON {
		return parseStream(text)
	}
	return parseDocument(text)
}

// add adds the content of a document, at its place in the file.
func (s *Set) add(doc *document, at place) {
	for _, o := range doc.objects {
		o.place = at
		s.Objects = append(s.Objects, o)
	}
	for _, p := range doc.problems {
		p.Position = Position{at.file, at.lines + p.Position.Line, p.Position.Column}
		s.Problems = append(s.Problems, p)
	}
}

// sort sorts the set. The second of two objects with one name is a problem.
func (s *Set) sort() {
	slices.SortStableFunc(s.Objects, Object.compare)
	unique := s.Objects[:0]
	for _, o := range s.Objects {
		if len(unique) > 0 && unique[len(unique)-1].compare(o) == 0 {
			s.Problems = append(s.Problems, Problem{
				Position: o.Position(), Kind: o.Kind, Namespace: o.Namespace, Name: o.Name,
				Message: "is defined twice; the first is at " + unique[len(unique)-1].Position().String(),
				Hint:    "this one was left out; remove one of the two",
			})
			continue
		}
		unique = append(unique, o)
	}
	s.Objects = unique
	slices.SortStableFunc(s.Problems, func(a, b Problem) int { return a.Position.Compare(b.Position) })
	if len(s.Problems) > mostProblems {
		s.Problems = shortened(s.Problems)
	}
}

// mostProblems is how many problems are listed one by one. If there are more, of one object, or of what is none in one
// file, mostOfOne are: a small file may have a hundred thousand, and whoever reads the others pays for each.
const mostProblems, mostOfOne = 10_000, 100

// shortened returns problems, sorted by position, with one in the place of those that are not listed. Each object that has
// a problem still has one.
func shortened(problems []Problem) []Problem {
	type subject struct{ file, kind, namespace, name string }
	listed, rest := map[subject]int{}, map[subject]int{} // how many, and where the one for the rest is
	var out []Problem
	for _, p := range problems {
		of := subject{p.Position.File, p.Kind, p.Namespace, p.Name}
		listed[of]++
		switch n := listed[of] - mostOfOne; {
		case n == 1:
			rest[of] = len(out)
			fallthrough
		case n < 1:
			out = append(out, p)
		default:
			first := &out[rest[of]]
			first.Message, first.Hint = fmt.Sprintf("%d more problems are not listed", n), "mend those that are"
		}
	}
	return out
}

// listing is the content of a directory at one moment.
type listing struct {
	wanted func(name string) bool // which files count
	dirs   []string               // that were searched
	files  []file                 // sorted by path
}

// file is one file to read. Info describes the target of a symbolic link.
type file struct {
	path string
	info fs.FileInfo
}

// unchanged reports whether both listings have the same files, with the same content as far as the file system
// tells.
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

// isHidden reports whether a file or folder of this name is skipped.
func isHidden(name string) bool { return strings.HasPrefix(name, ".") }

// list lists the wanted files in a directory and below it, or the one file that root names. It follows symbolic
// links, since ConfigMaps and git-sync publish by them, but enters no directory twice.
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

// add adds one entry of a directory. It skips an entry that is gone by now.
func (l *listing) add(path string, entered map[string]bool) error {
	info, err := os.Stat(path)
	if err == nil && info.IsDir() {
		err = l.enter(path, entered)
	} else if err == nil && info.Mode().IsRegular() && l.wanted(filepath.Base(path)) {
		l.files = append(l.files, file{path, info})
	}
	if !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	if isGone(path) || !l.wanted(filepath.Base(path)) {
		return nil
	}
	return process.WithHint(fmt.Errorf("%s is a symbolic link that leads to nothing: %w", path, err), "restore what it leads to, or remove the link: without it nobody can tell what is missing")
}

// isGone reports whether nothing exists under a name, not even a symbolic link without a target, as there is
// one while its target is replaced.
func isGone(path string) bool {
	_, err := os.Lstat(path)
	return errors.Is(err, fs.ErrNotExist)
}

// Text is a manifest that is in memory already, such as one that came through a pipe. File is its name in
// positions.
type Text struct {
	File string
	Data []byte
}

// ReadTexts reads YAML in the same way as [Read] does the files of a directory.
func ReadTexts(texts ...Text) Set {
	var parts []part
	for _, t := range texts {
		parts = append(parts, partsOf(t.File, t.Data, false)...)
	}
	return new(Reader).set(parts)
}

// Merge returns the content of several sets. An object that is in two sets because one file was read twice is
// there once. Of two different objects of one name, the second is a problem.
func Merge(sets ...Set) Set {
	var merged Set
	objects, problems := map[Position]bool{}, map[Problem]bool{}
	for _, s := range sets {
		for _, o := range s.Objects {
			if at := o.Position(); !objects[at] {
				objects[at] = true
				merged.Objects = append(merged.Objects, o)
			}
		}
		for _, p := range s.Problems {
			if !problems[p] {
				problems[p] = true
				merged.Problems = append(merged.Problems, p)
			}
		}
	}
	merged.sort()
	return merged
}
