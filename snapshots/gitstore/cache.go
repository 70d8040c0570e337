package gitstore

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"sync"

	"github.com/go-git/go-billy/v5"
	"github.com/go-git/go-git/v5"
	"github.com/go-git/go-git/v5/plumbing"
	"github.com/go-git/go-git/v5/plumbing/cache"
	"github.com/go-git/go-git/v5/plumbing/format/packfile"
	"github.com/go-git/go-git/v5/plumbing/storer"
	"github.com/go-git/go-git/v5/storage/filesystem"

	"github.com/hapsnap/hapsnap/internal/filelock"
	"github.com/hapsnap/hapsnap/snapshots"
)

const (
	// freshAfter is how many fetches a cache takes before it is replaced. go-git never packs or
	// collects objects, and looks for each object in every pack.
	freshAfter = 50
	// objectCache bounds the unpacked objects in memory. Commits are read once, so a large cache would
	// be of little use.
	objectCache = 4 * cache.MiByte
	// repositoryPrefix begins the names of repositories in a cache folder.
	repositoryPrefix = "store-"
	// ownerFile is a file in each repository. The process that uses the repository holds a lock on it.
	ownerFile = "owner.lock"
	ownerMode = 0o600
)

// commitCache is a bare repository on disk with the commits that were fetched. It belongs to one Store:
// sharing it would need locks around every read, and save only cheap fetches. Losing it does no harm.
type commitCache struct {
	folder  string // of all caches
	limit   int    // of fetches
	fetches int
	path    string // of this one, "" until it is needed
	owner   *filelock.Lock
	files   *openFiles
	storage *filesystem.Storage

	tooLarge map[plumbing.Hash]error // commits that are not fetched again
}

// has reports whether the commit is in the cache. Then everything that belongs to it is there too:
// packs are stored whole or not at all.
func (c *commitCache) has(commit plumbing.Hash) bool {
	return c.storage != nil && c.storage.HasEncodedObject(commit) == nil
}

// ensure fetches the commit if the cache does not have it.
func (c *commitCache) ensure(ctx context.Context, from remote, commit plumbing.Hash) error {
	if c.has(commit) {
		return nil
	}
	if err := c.tooLarge[commit]; err != nil {
		return err
	}
	return c.fetch(ctx, from, commit, 1)
}

// fetch fetches the commit with its history, so many commits deep.
func (c *commitCache) fetch(ctx context.Context, from remote, commit plumbing.Hash, depth int) error {
	if c.fetches >= c.limit {
		c.drop()
	}
	if c.storage == nil {
		if err := c.create(ctx); err != nil {
			return fmt.Errorf("make cache in %s: %w", c.folder, err)
		}
	}
	c.fetches++
	err := from.Fetch(ctx, commit, depth, c.storage)
	if err == nil && !c.has(commit) {
		err = errors.New("the repository did not send it")
	}
	if err != nil {
		// A fetch that was abandoned may go on writing to this repository.
		c.drop()
		if errors.Is(err, errTooLarge) && depth == 1 {
			if len(c.tooLarge) >= maxVerdicts {
				clear(c.tooLarge)
			}
			c.tooLarge[commit] = err
		}
		return again(fmt.Errorf("fetch commit %s: %w", commit, err))
	}
	return nil
}

// create makes a repository of this process, and removes those of processes that were killed.
func (c *commitCache) create(ctx context.Context) error {
	if err := os.MkdirAll(c.folder, 0o700); err != nil {
		return err
	}
	gate, err := filelock.Wait(ctx, filepath.Join(c.folder, ownerFile), ownerMode)
	if err != nil {
		return err
	}
	defer gate.Release()
	// Repositories that no process owns go.
	entries, err := os.ReadDir(c.folder)
	if err != nil {
		return err
	}
	for _, entry := range entries {
		if !entry.IsDir() || !strings.HasPrefix(entry.Name(), repositoryPrefix) {
			continue
		}
		path := filepath.Join(c.folder, entry.Name())
		owner, err := filelock.Try(filepath.Join(path, ownerFile), ownerMode)
		if err != nil {
			continue // in use
		}
		err = os.RemoveAll(path)
		owner.Release()
		if err != nil {
			return err
		}
	}
	if c.path, err = os.MkdirTemp(c.folder, repositoryPrefix); err != nil {
		return err
	}
	if c.owner, err = filelock.Try(filepath.Join(c.path, ownerFile), ownerMode); err != nil {
		return err
	}
	repository, err := git.PlainInit(c.path, true)
	if err != nil {
		return err
	}
	made, ok := repository.Storer.(*filesystem.Storage)
	if !ok {
		return fmt.Errorf("go-git made a %T", repository.Storer)
	}
	c.files = &openFiles{Filesystem: made.Filesystem(), open: map[billy.File]bool{}}
	c.storage = filesystem.NewStorage(c.files, cache.NewObjectLRU(objectCache))
	return nil
}

// drop forgets all commits.
func (c *commitCache) drop() {
	if c.files != nil {
		c.files.closeAll()
	}
	if c.path != "" {
		// The next sweep removes what cannot be removed now.
		_ = os.RemoveAll(c.path)
	}
	if c.owner != nil {
		c.owner.Release()
	}
	*c = commitCache{folder: c.folder, limit: c.limit, tooLarge: c.tooLarge}
}

const (
	// maxPack is how much of a pack is taken from a repository, compressed.
	maxPack = snapshots.MaxSnapshot
	// maxUnpacked bounds the objects of a pack together: the files of a snapshot, and as much again for
	// files beside it.
	maxUnpacked = 2 * snapshots.MaxSnapshot
	// maxTree is how large a commit, or a folder, may be.
	maxTree = 8 << 20
)

// errTooLarge is returned for a commit that is larger than a snapshot, or a channel, may be. The
// content of a commit never changes, so that it is not fetched again.
var errTooLarge = fmt.Errorf("%w: it is too large", snapshots.ErrCorrupt)

// spool writes a pack to a file without a name, and returns the file at its beginning. It fails with
// errTooLarge if the pack, or what is in it, is too large: go-git would unpack each object into memory
// to compute its hash, whatever its size.
func spool(ctx context.Context, pack io.Reader, dir string) (*os.File, error) {
	file, err := os.CreateTemp(dir, "pack-*")
	if err != nil {
		return nil, err
	}
	fail := func(err error) (*os.File, error) {
		return nil, errors.Join(err, file.Close())
	}
	if err := os.Remove(file.Name()); err != nil {
		return fail(err)
	}
	n, err := io.Copy(file, io.LimitReader(pack, maxPack+1))
	if err == nil && n > maxPack {
		err = fmt.Errorf("%w: its pack has more than %d bytes", errTooLarge, maxPack)
	}
	if err == nil {
		_, err = file.Seek(0, io.SeekStart)
	}
	if err == nil {
		err = checkPack(ctx, file)
	}
	if err == nil {
		_, err = file.Seek(0, io.SeekStart)
	}
	if err != nil {
		return fail(err)
	}
	return file, nil
}

// checkPack reads the sizes that the objects of a pack declare. A delta declares it in its first bytes.
func checkPack(ctx context.Context, pack io.Reader) error {
	scanner := packfile.NewScanner(pack)
	_, objects, err := scanner.Header()
	if err != nil {
		return fmt.Errorf("read pack: %w", err)
	}
	var all int64
	for range objects {
		if err := ctx.Err(); err != nil {
			return err
		}
		header, err := scanner.NextObjectHeader()
		if err != nil {
			return fmt.Errorf("read pack: %w", err)
		}
		size := header.Length
		if size <= snapshots.MaxFile {
			head := &firstBytes{most: 2 * binary.MaxVarintLen64}
			if _, _, err := scanner.NextObject(head); err != nil {
				return fmt.Errorf("read pack: %w", err)
			}
			if header.Type.IsDelta() {
				size = max(size, head.target())
			}
		}
		if size > snapshots.MaxFile {
			return fmt.Errorf("%w: it has a file of %d bytes, and %d are allowed", errTooLarge, size, snapshots.MaxFile)
		}
		if all += size; all > maxUnpacked {
			return fmt.Errorf("%w: it has more than %d bytes", errTooLarge, maxUnpacked)
		}
	}
	return nil
}

// firstBytes keeps the first bytes that are written to it.
type firstBytes struct {
	bytes.Buffer
	most int
}

func (f *firstBytes) Write(p []byte) (int, error) {
	if rest := f.most - f.Len(); rest > 0 {
		f.Buffer.Write(p[:min(rest, len(p))])
	}
	return len(p), nil
}

// target returns the size of the object that a delta makes, as the delta declares it: after the size of
// the base object, both as numbers of seven bits to a byte.
func (f *firstBytes) target() int64 {
	if _, err := binary.ReadUvarint(&f.Buffer); err != nil {
		return 0
	}
	size, err := binary.ReadUvarint(&f.Buffer)
	if err != nil || size > snapshots.MaxFile {
		return snapshots.MaxFile + 1
	}
	return int64(size)
}

// checkSize returns an error for an object that is larger than it may be, before it is
// read.
func checkSize(in storer.EncodedObjectStorer, hash plumbing.Hash, most int64) error {
	size, err := in.EncodedObjectSize(hash)
	if err == nil && size > most {
		err = fmt.Errorf("%w: object %s has %d bytes, and may have %d", errTooLarge, hash, size, most)
	}
	return err
}

// openFiles is a file system that closes files which others leave open. When a fetch breaks off, go-git
// leaves a pack open for as long as the process lives: two files each time, and the disk space of one
// that was removed.
type openFiles struct {
	billy.Filesystem

	mu   sync.Mutex
	open map[billy.File]bool
}

// TempFile implements [billy.TempFile].
func (o *openFiles) TempFile(dir, prefix string) (billy.File, error) {
	return o.keep(o.Filesystem.TempFile(dir, prefix))
}

// Open implements [billy.Basic].
func (o *openFiles) Open(name string) (billy.File, error) {
	return o.keep(o.Filesystem.Open(name))
}

func (o *openFiles) keep(f billy.File, err error) (billy.File, error) {
	if err != nil {
		return nil, err
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	o.open[f] = true
	return keptFile{f, o}, nil
}

// closeAll closes all open files. A caller that still uses one gets errors.
func (o *openFiles) closeAll() {
	o.mu.Lock()
	defer o.mu.Unlock()
	for f := range o.open {
		_ = f.Close()
	}
	clear(o.open)
}

// keptFile is a file of an [openFiles].
type keptFile struct {
	billy.File
	of *openFiles
}

// Close closes the file, unless closeAll did.
func (f keptFile) Close() error {
	f.of.mu.Lock()
	defer f.of.mu.Unlock()
	if !f.of.open[f.File] {
		return nil
	}
	delete(f.of.open, f.File)
	return f.File.Close()
}
