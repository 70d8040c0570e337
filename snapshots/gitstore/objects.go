package gitstore

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"maps"
	"path"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/go-git/go-git/v5/plumbing"
	"github.com/go-git/go-git/v5/plumbing/filemode"
	"github.com/go-git/go-git/v5/plumbing/format/packfile"
	"github.com/go-git/go-git/v5/plumbing/object"
	"github.com/go-git/go-git/v5/plumbing/storer"
	"github.com/go-git/go-git/v5/storage/memory"

	"github.com/hapsnap/hapsnap/snapshots"
	"github.com/hapsnap/hapsnap/snapshots/channel"
	"github.com/hapsnap/hapsnap/snapshots/delivery"
)

// blobs are the files of a commit: the hash of each, by path.
type blobs map[string]plumbing.Hash

// builder collects the objects of a commit that the repository does not have yet.
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

// add collects an object. It hashes the object first, since most files are the same as in the parent.
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

// folder adds the tree of a folder with these files, and the trees of its folders.
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

// sortName returns the name as git sorts it: a folder's name ends in a slash.
func sortName(e object.TreeEntry) string {
	if e.Mode == filemode.Dir {
		return e.Name + "/"
	}
	return e.Name
}

// commit adds a commit; without a parent, the first of its branch. Sign returns its signature, or ""
// for none.
func (b *builder) commit(tree, parent plumbing.Hash, by object.Signature, message string, sign func(*object.Commit) (string, error)) (plumbing.Hash, error) {
	return b.commitBy(by, tree, parent, by, message, sign)
}

// commitBy is commit with an author other than the committer.
func (b *builder) commitBy(author object.Signature, tree, parent plumbing.Hash, by object.Signature, message string, sign func(*object.Commit) (string, error)) (plumbing.Hash, error) {
	c := &object.Commit{Author: author, Committer: by, Message: message, TreeHash: tree}
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

// subjectLength is how many characters of a subject all git tools show.
const subjectLength = 72

// snapshotMessage is the message of a snapshot's commit: a subject that says
// what changed, and trailers for machines.
func snapshotMessage(name string, m snapshots.Manifest) string {
	subject := printable(fmt.Sprintf("%s r%d: %s", name, m.Spec.Revision, m.Spec.Subject))
	trailers := trailers{
		{"Hapsnap-Snapshot", m.Metadata.Name},
		{"Hapsnap-Parent", m.Spec.Parent.String()},
		{"Hapsnap-Digest", string(m.Spec.Digest)},
		{"Hapsnap-Compiler", m.Provenance.CompilerVersion},
		{"Hapsnap-Trigger", m.Provenance.Trigger},
		{"Hapsnap-Author", m.Provenance.Author},
		{"HAProxy-Version", m.Provenance.HAProxyVersion},
	}
	for n, p := range persons(m.Provenance.Author) {
		if n > 0 { // the first is the author of the commit
			trailers = append(trailers, [2]string{"Co-authored-by", p.String()})
		}
	}
	return message(strings.TrimSuffix(subject, ":"), trailers)
}

// channelMessage is the message of a commit that changes the channel.
func channelMessage(name, subject string, act channel.Act) string {
	return message(strings.TrimSuffix(printable(name+" channel: "+subject), ":"), trailers{
		{"Hapsnap-Act", string(act.Verb)}, {"Hapsnap-Snapshot", act.Snapshot.String()}, {"Hapsnap-By", act.By}, {"Hapsnap-Reason", act.Reason}, {"Hapsnap-From", act.From},
	})
}

type trailers [][2]string

// message joins subject and trailers. A subject that is too long is cut between words if possible, and
// stands whole in the body.
func message(subject string, t trailers) string {
	var b strings.Builder
	fmt.Fprintln(&b, shorten(subject))
	if shorten(subject) != subject {
		fmt.Fprintf(&b, "\n%s\n", subject)
	}
	separator := "\n"
	for _, trailer := range t {
		if value := printable(trailer[1]); value != "" {
			fmt.Fprintf(&b, "%s%s: %s\n", separator, trailer[0], value)
			separator = ""
		}
	}
	return b.String()
}

// shorten cuts a line to the length of a subject.
func shorten(line string) string {
	const ellipsis = "…"
	if utf8.RuneCountInString(line) <= subjectLength {
		return line
	}
	cut := string([]rune(line)[:subjectLength-1])
	if space := strings.LastIndexByte(cut, ' '); space > len(cut)/2 {
		cut = cut[:space]
	}
	return cut + ellipsis
}

// printable makes one line of s: it replaces control and formatting characters, with which a name could
// forge a trailer or hide text, with spaces.
func printable(s string) string {
	clean := strings.Map(func(r rune) rune {
		if !unicode.IsPrint(r) {
			return ' '
		}
		return r
	}, s)
	return strings.Join(strings.Fields(clean), " ")
}

// errNoFile is returned for a file that a commit does not have.
var errNoFile = errors.New("no such file")

// reader reads one commit. It walks the trees itself: go-git's walkers skip what they do not find, and
// refuse names that Windows reserves, such as maps/aux.map.
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
	manifest, beside, err := r.manifest()
	if err != nil {
		return snapshots.Snapshot{}, nil, err
	}
	all := blobs{}
	if err := r.walk(r.root, "", wanted(manifest, beside), all); err != nil {
		return snapshots.Snapshot{}, nil, err
	}
	sizes := map[string]int64{}
	for _, f := range manifest.Spec.Files {
		sizes[f.Path] = f.Size
	}
	s := snapshots.Snapshot{Manifest: manifest}
	for p, hash := range all {
		if _, ok := beside[p]; ok || p == snapshots.ManifestFile {
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

// manifest returns the manifest, whole, and the files beside it that parts of it were in.
func (r reader) manifest() (m snapshots.Manifest, beside blobs, err error) {
	data, err := r.file(snapshots.ManifestFile, snapshots.MaxManifest)
	if errors.Is(err, errNoFile) {
		err = fmt.Errorf("%w: %s is missing", snapshots.ErrCorrupt, snapshots.ManifestFile)
	}
	if err != nil {
		return snapshots.Manifest{}, nil, err
	}
	if m, err = snapshots.ParseManifest(data); err != nil || m.Provenance.InputsBeside == 0 {
		return m, nil, err
	}
	beside = blobs{}
	var files []snapshots.File
	for _, entry := range r.root.Entries {
		if entry.Name != snapshots.InputsFolder || entry.Mode != filemode.Dir {
			continue
		}
		folder, err := r.tree(entry.Hash)
		if err != nil {
			return snapshots.Manifest{}, nil, fmt.Errorf("read %s: %w", entry.Name, err)
		}
		room := int64(snapshots.MaxManifest)
		for _, file := range folder.Entries {
			f := snapshots.File{Path: path.Join(entry.Name, file.Name)}
			if f.Content, err = r.blob(file.Hash, room); err != nil {
				return snapshots.Manifest{}, nil, fmt.Errorf("read %s: %w", f.Path, err)
			}
			room -= int64(len(f.Content))
			beside[f.Path] = file.Hash
			files = append(files, f)
		}
	}
	return m, beside, m.Join(files)
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
func wanted(m snapshots.Manifest, beside blobs) map[string]bool {
	paths := map[string]bool{snapshots.ManifestFile: true}
	files := slices.Collect(maps.Keys(beside))
	for _, f := range m.Spec.Files {
		files = append(files, f.Path)
	}
	for _, file := range files {
		for p := file; p != "." && p != "/" && !paths[p]; p = path.Dir(p) {
			paths[p] = true
		}
	}
	return paths
}

// walk collects the files of a tree, except those that deliver it, which are no part of the snapshot.
// It stops at the first other path that is not wanted, so that a tree which contains itself a million
// times costs nothing. A link, a submodule or an executable is no part of any snapshot.
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
			below, err := r.tree(entry.Hash)
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

func (r reader) tree(hash plumbing.Hash) (*object.Tree, error) {
	if err := checkSize(r.from, hash, maxTree); isCorrupt(err) {
		return nil, err
	}
	return object.GetTree(r.from, hash)
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
