package manifests

import (
	"bytes"
	"crypto/sha256"
	"fmt"
	"os"
	"path/filepath"
	"slices"
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
	var set Set
	parsed := make(map[documentKey]*document, len(r.parsed))
	for _, f := range files {
		data, err := os.ReadFile(f.path)
		if err != nil {
			return Set{}, fmt.Errorf("read manifests: %w", err)
		}
		data = bytes.TrimPrefix(data, []byte("\xef\xbb\xbf"))
		isJSON := filepath.Ext(f.path) == ".json"
		for _, c := range split(data, isJSON) {
			key := documentKey{isJSON, sha256.Sum256(c.text)}
			doc := r.parsed[key]
			if doc == nil {
				doc = parse(c.text, isJSON)
			}
			parsed[key] = doc
			set.add(doc, place{f.path, c.lines})
		}
	}
	r.parsed = parsed
	set.sort()
	return set, nil
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
