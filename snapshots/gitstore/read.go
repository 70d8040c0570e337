package gitstore

import (
	"errors"
	"fmt"
	"io"
	"path"
	"slices"
	"strings"

	"github.com/go-git/go-git/v5/plumbing"
	"github.com/go-git/go-git/v5/plumbing/filemode"
	"github.com/go-git/go-git/v5/plumbing/object"
	"github.com/go-git/go-git/v5/plumbing/storer"

	"github.com/hapsnap/hapsnap/snapshots"
	"github.com/hapsnap/hapsnap/snapshots/delivery"
)

// errNoFile is returned for a file that a commit does not have.
var errNoFile = errors.New("no such file")

// reader reads one commit. It walks the trees itself: go-git's walkers pass
// over what they do not find, and refuse names that Windows reserves, such as
// maps/aux.map.
type reader struct {
	from   storer.EncodedObjectStorer
	commit *object.Commit
	root   *object.Tree
}

func newReader(from storer.EncodedObjectStorer, commit plumbing.Hash) (reader, error) {
	if err := checkSize(from, commit, maxTree); isCorrupt(err) {
		return reader{}, err
	}
	c, err := object.GetCommit(from, commit)
	if errors.Is(err, plumbing.ErrObjectNotFound) {
		return reader{}, fmt.Errorf("%w: %s is not a commit", snapshots.ErrCorrupt, commit)
	}
	if err != nil {
		return reader{}, fmt.Errorf("read commit %s: %w", commit, err)
	}
	if err := checkSize(from, c.TreeHash, maxTree); isCorrupt(err) {
		return reader{}, err
	}
	root, err := object.GetTree(from, c.TreeHash)
	if err != nil {
		return reader{}, fmt.Errorf("read tree of %s: %w", commit, err)
	}
	return reader{from, c, root}, nil
}

// snapshot returns the snapshot that the commit holds, verified, and the hashes
// of its files.
func (r reader) snapshot() (snapshots.Snapshot, blobs, error) {
	manifest, err := r.manifest()
	if err != nil {
		return snapshots.Snapshot{}, nil, err
	}
	all := blobs{}
	if err := r.walk(r.root, "", wanted(manifest), all); err != nil {
		return snapshots.Snapshot{}, nil, err
	}
	sizes := map[string]int64{}
	for _, f := range manifest.Spec.Files {
		sizes[f.Path] = f.Size
	}
	s := snapshots.Snapshot{Manifest: manifest}
	for p, hash := range all {
		if p == snapshots.ManifestFile {
			continue
		}
		content, err := r.blob(hash, sizes[p]) // more is not what the manifest says
		if err != nil {
			return snapshots.Snapshot{}, nil, fmt.Errorf("read %s: %w", p, err)
		}
		s.Files = append(s.Files, snapshots.File{Path: p, Content: content})
	}
	slices.SortFunc(s.Files, func(a, b snapshots.File) int { return strings.Compare(a.Path, b.Path) })
	return s, all, s.Verify()
}

func (r reader) manifest() (snapshots.Manifest, error) {
	data, err := r.file(snapshots.ManifestFile, snapshots.MaxManifest)
	if errors.Is(err, errNoFile) {
		return snapshots.Manifest{}, fmt.Errorf("%w: %s is missing", snapshots.ErrCorrupt, snapshots.ManifestFile)
	}
	if err != nil {
		return snapshots.Manifest{}, err
	}
	return snapshots.ParseManifest(data)
}

// file returns the content of a file at the root, of at most so many bytes, or errNoFile.
func (r reader) file(name string, most int64) ([]byte, error) {
	for _, entry := range r.root.Entries {
		if entry.Name == name && entry.Mode.IsFile() {
			return r.blob(entry.Hash, most)
		}
	}
	return nil, fmt.Errorf("read %s: %w", name, errNoFile)
}

// wanted returns the paths of a snapshot's files, and of the folders they are in.
func wanted(m snapshots.Manifest) map[string]bool {
	paths := map[string]bool{snapshots.ManifestFile: true}
	for _, f := range m.Spec.Files {
		for p := f.Path; p != "." && p != "/" && !paths[p]; p = path.Dir(p) {
			paths[p] = true
		}
	}
	return paths
}

// walk collects the files of a tree, but for those that deliver it, which are no part
// of it. It stops at the first other path that is not wanted, so that a tree which names itself a million times costs nothing. A
// link, a submodule or an executable is no part of any snapshot.
func (r reader) walk(tree *object.Tree, folder string, wanted map[string]bool, into blobs) error {
	for _, entry := range tree.Entries {
		p := path.Join(folder, entry.Name)
		switch {
		case !wanted[p] && delivery.Owns(p):
		case !wanted[p]:
			return fmt.Errorf("%w: %s is not in the manifest", snapshots.ErrCorrupt, p)
		case entry.Mode == filemode.Regular:
			into[p] = entry.Hash
		case entry.Mode == filemode.Dir:
			if err := checkSize(r.from, entry.Hash, maxTree); isCorrupt(err) {
				return err
			}
			below, err := object.GetTree(r.from, entry.Hash)
			if err != nil {
				return fmt.Errorf("read %s: %w", p, err)
			}
			if err := r.walk(below, p, wanted, into); err != nil {
				return err
			}
		default:
			return fmt.Errorf("%w: %s is not a regular file", snapshots.ErrCorrupt, p)
		}
	}
	return nil
}

func (r reader) blob(hash plumbing.Hash, most int64) (content []byte, err error) {
	if err := checkSize(r.from, hash, most); isCorrupt(err) {
		return nil, err
	}
	b, err := object.GetBlob(r.from, hash)
	if err != nil {
		return nil, err
	}
	in, err := b.Reader()
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, in.Close()) }()
	content = make([]byte, b.Size)
	_, err = io.ReadFull(in, content)
	return content, err
}
