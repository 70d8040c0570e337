package gitstore

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/go-git/go-git/v5"
	"github.com/go-git/go-git/v5/plumbing"
	"github.com/go-git/go-git/v5/plumbing/cache"
	"github.com/go-git/go-git/v5/storage/filesystem"

	"github.com/hapsnap/hapsnap/internal/filelock"
)

const (
	// freshAfter is how many fetches a cache takes. go-git never packs or
	// collects, and looks for each object in every pack.
	freshAfter = 50
	// objectCache bounds what is kept unpacked in memory. Commits are read
	// once, so it is of little use.
	objectCache = 4 * cache.MiByte
	// repositoryPrefix begins the names of repositories in a cache folder.
	repositoryPrefix = "store-"
	// ownerFile is locked in each of them by the process that uses it.
	ownerFile = "owner.lock"
	ownerMode = 0o600
)

// commitCache is a bare repository on disk that holds the commits which were
// fetched. It belongs to one Store: sharing it would need locks around every
// read, to save fetches that cost little. Nothing in it is worth keeping.
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

// has reports whether the commit, and with it all that belongs to it, is here:
// packs are stored whole or not at all.
func (c *commitCache) has(commit plumbing.Hash) bool {
	return c.storage != nil && c.storage.HasEncodedObject(commit) == nil
}

// ensure fetches the commit if it is not here.
func (c *commitCache) ensure(ctx context.Context, from remote, commit plumbing.Hash) error {
	if c.has(commit) {
		return nil
	}
	if err := c.tooLarge[commit]; err != nil {
		return err
	}
	return c.fetch(ctx, from, commit, 1)
}

// deepen fetches the commit with its history, so many commits deep.
func (c *commitCache) deepen(ctx context.Context, from remote, commit plumbing.Hash, depth int) error {
	return c.fetch(ctx, from, commit, depth)
}

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
		// A fetch that was left to itself may go on writing to this one.
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

// create makes a repository of our own, and removes those of processes that
// were killed.
func (c *commitCache) create(ctx context.Context) error {
	if err := os.MkdirAll(c.folder, 0o700); err != nil {
		return err
	}
	gate, err := filelock.Wait(ctx, filepath.Join(c.folder, ownerFile), ownerMode)
	if err != nil {
		return err
	}
	defer gate.Release()
	if err := sweep(c.folder); err != nil {
		return err
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
	c.files = newOpenFiles(made.Filesystem())
	c.storage = filesystem.NewStorage(c.files, cache.NewObjectLRU(objectCache))
	return nil
}

// drop forgets all commits.
func (c *commitCache) drop() {
	if c.files != nil {
		c.files.closeAll()
	}
	if c.path != "" {
		// What cannot be removed now, the next sweep removes.
		_ = os.RemoveAll(c.path)
	}
	if c.owner != nil {
		c.owner.Release()
	}
	*c = commitCache{folder: c.folder, limit: c.limit, tooLarge: c.tooLarge}
}

// sweep removes the repositories that no process owns.
func sweep(folder string) error {
	entries, err := os.ReadDir(folder)
	if err != nil {
		return err
	}
	for _, entry := range entries {
		if !entry.IsDir() || !strings.HasPrefix(entry.Name(), repositoryPrefix) {
			continue
		}
		path := filepath.Join(folder, entry.Name())
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
	return nil
}
