package manifests

import (
	"bytes"
	"crypto/sha256"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"slices"

	"golang.org/x/sync/errgroup"
)

// Read reads the manifests in a directory and below it, or in one file. Hidden
// files and directories are skipped. The error names what could not be read;
// it means that nothing is known of the objects, not that there are none.
func Read(dir string) (Set, error) { return new(Reader).Read(dir) }

// Reader reads directories again and again, and parses only the documents
// that changed. The zero Reader is ready. It is not for concurrent use.
type Reader struct {
	parsed map[documentKey]*document
}

// documentKey names a document by its content.
type documentKey struct {
	json bool
	sum  [sha256.Size]byte
}

// maxReads bounds how often a directory that keeps changing is read anew.
const maxReads = 5

// Read reads like the function [Read]. A directory that changes while it is
// read is read again, so that a file that is replaced in the meantime is not
// missed.
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

// readFiles reads the files of a listing, and forgets what they no longer hold.
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

// set parses the parts that are new, and returns what all of them hold.
func (r *Reader) set(parts []part) Set {
	r.parse(parts)
	var set Set
	for _, p := range parts {
		set.add(r.parsed[p.key], p.at)
	}
	set.sort()
	return set
}

// part is a document of a file that has been read.
type part struct {
	at   place
	text []byte
	key  documentKey
}

// parse parses the documents that are new, on all processors, and keeps those
// that are there.
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
	workers.SetLimit(runtime.GOMAXPROCS(0))
	for i, p := range missing {
		workers.Go(func() error {
			documents[i] = parse(p.text, p.key.json)
			return nil
		})
	}
	_ = workers.Wait() // parsing has no errors, only problems
	for i, p := range missing {
		parsed[p.key] = documents[i]
	}
	r.parsed = parsed
}

// split returns the parts of a file that are parsed each for itself.
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

// add adds what a document holds, in the place where it stands.
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

// sort brings the set into order. Of two objects of one name, the second is a
// problem.
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
}
