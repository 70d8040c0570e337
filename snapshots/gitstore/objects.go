package gitstore

import (
	"bytes"
	"fmt"
	"slices"
	"strings"

	"github.com/go-git/go-git/v5/plumbing"
	"github.com/go-git/go-git/v5/plumbing/filemode"
	"github.com/go-git/go-git/v5/plumbing/format/packfile"
	"github.com/go-git/go-git/v5/plumbing/object"
	"github.com/go-git/go-git/v5/storage/memory"

	"github.com/hapsnap/hapsnap/snapshots"
)

// blobs are the files of a commit: the hash of each, by path.
type blobs map[string]plumbing.Hash

// builder collects the objects of a commit that the repository does not have.
type builder struct {
	has     map[plumbing.Hash]bool // what the parent commit has
	objects []plumbing.Hash        // new, in the order of building
	storage *memory.Storage
}

// emptyPack goes with updates that need no objects.
var emptyPack = mustPack(newBuilder(nil))

func newBuilder(parent blobs) *builder {
	b := &builder{has: map[plumbing.Hash]bool{}, storage: memory.NewStorage()}
	for _, hash := range parent {
		b.has[hash] = true
	}
	return b
}

func mustPack(b *builder) []byte {
	pack, err := b.pack()
	if err != nil {
		panic(err)
	}
	return pack
}

// pack encodes the collected objects. There may be none.
func (b *builder) pack() ([]byte, error) {
	var out bytes.Buffer
	if _, err := packfile.NewEncoder(&out, b.storage, false).Encode(b.objects, 0); err != nil {
		return nil, fmt.Errorf("encode pack: %w", err)
	}
	return out.Bytes(), nil
}

// blob adds a file.
func (b *builder) blob(content []byte) (plumbing.Hash, error) {
	o := &plumbing.MemoryObject{}
	o.SetType(plumbing.BlobObject)
	if _, err := o.Write(content); err != nil {
		return plumbing.ZeroHash, err
	}
	return b.add(o)
}

// add collects an object. It is hashed before anything else is done with it,
// since most files are those of the parent.
func (b *builder) add(o plumbing.EncodedObject) (plumbing.Hash, error) {
	hash := o.Hash()
	if b.has[hash] {
		return hash, nil
	}
	b.has[hash] = true
	b.objects = append(b.objects, hash)
	return b.storage.SetEncodedObject(o)
}

// files adds all files and the folders that they are in.
func (b *builder) files(files []snapshots.File) (tree plumbing.Hash, all blobs, err error) {
	all = blobs{}
	for _, f := range files {
		if all[f.Path], err = b.blob(f.Content); err != nil {
			return plumbing.ZeroHash, nil, fmt.Errorf("encode %s: %w", f.Path, err)
		}
	}
	tree, err = b.folder(all)
	return tree, all, err
}

// folder adds the tree with these files, and those of its folders.
func (b *builder) folder(all blobs) (plumbing.Hash, error) {
	var entries []object.TreeEntry
	below := map[string]blobs{}
	for path, hash := range all {
		name, rest, nested := strings.Cut(path, "/")
		switch {
		case !nested:
			entries = append(entries, object.TreeEntry{Name: name, Mode: filemode.Regular, Hash: hash})
		case below[name] == nil:
			below[name] = blobs{rest: hash}
		default:
			below[name][rest] = hash
		}
	}
	for name, files := range below {
		hash, err := b.folder(files)
		if err != nil {
			return plumbing.ZeroHash, err
		}
		entries = append(entries, object.TreeEntry{Name: name, Mode: filemode.Dir, Hash: hash})
	}
	return b.tree(entries)
}

// tree adds a tree with these entries, in git's order.
func (b *builder) tree(entries []object.TreeEntry) (plumbing.Hash, error) {
	slices.SortFunc(entries, func(x, y object.TreeEntry) int { return strings.Compare(sortName(x), sortName(y)) })
	o := &plumbing.MemoryObject{}
	if err := (&object.Tree{Entries: entries}).Encode(o); err != nil {
		return plumbing.ZeroHash, fmt.Errorf("encode tree: %w", err)
	}
	return b.add(o)
}

// sortName is what git compares: a folder's name ends in a slash.
func sortName(e object.TreeEntry) string {
	if e.Mode == filemode.Dir {
		return e.Name + "/"
	}
	return e.Name
}

// commit adds a commit; without a parent, the first of its branch. What it says is
// signed by sign, which returns "" for commits that are not.
func (b *builder) commit(tree, parent plumbing.Hash, by object.Signature, message string, sign func(*object.Commit) (string, error)) (plumbing.Hash, error) {
	c := &object.Commit{Author: by, Committer: by, Message: message, TreeHash: tree}
	if !parent.IsZero() {
		c.ParentHashes = []plumbing.Hash{parent}
	}
	var err error
	if c.PGPSignature, err = sign(c); err != nil {
		return plumbing.ZeroHash, err
	}
	o := &plumbing.MemoryObject{}
	if err := c.Encode(o); err != nil {
		return plumbing.ZeroHash, fmt.Errorf("encode commit: %w", err)
	}
	return b.add(o)
}
