// Package scratch makes folders that a process needs for a while. [Sweep] removes the folders of killed
// processes. It removes a folder only if that is certainly a scratch folder, belongs to this user, and its
// process has ended. A lock on a file in the folder tells whether the process lives, since the kernel releases
// it however the process ends.
package scratch

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/hapsnap/hapsnap/internal/filelock"
)

const (
	ownerFile = ".owner"
	ownerMode = 0o600
	// youngest is the age from which on a folder is removed, since a new folder may not have its lock yet.
	youngest = time.Minute
)

// Folder is a folder of this process.
type Folder struct {
	Path string
	lock *filelock.Lock
}

// Make makes a folder whose name begins with prefix, in parent, or, if that is "", where temporary files go.
func Make(parent, prefix string) (*Folder, error) {
	path, err := os.MkdirTemp(parent, prefix)
	if err != nil {
		return nil, err
	}
	lock, err := filelock.Try(filepath.Join(path, ownerFile), ownerMode)
	if err != nil {
		return nil, errors.Join(fmt.Errorf("own %s: %w", path, err), os.RemoveAll(path))
	}
	return &Folder{Path: path, lock: lock}, nil
}

// Remove removes the folder and its content.
func (f *Folder) Remove() {
	_ = os.RemoveAll(f.Path) // the next sweep removes what cannot be removed now
	f.lock.Release()
}

// Sweep removes the folders in parent whose names begin with one of the prefixes and whose processes have
// ended. What cannot be removed stays.
func Sweep(parent string, prefixes ...string) { sweep(parent, youngest, prefixes) }

func sweep(parent string, age time.Duration, prefixes []string) {
	entries, err := os.ReadDir(parent)
	if err != nil {
		return
	}
	for _, entry := range entries {
		named := slices.ContainsFunc(prefixes, func(p string) bool { return strings.HasPrefix(entry.Name(), p) })
		if !named || !entry.IsDir() {
			continue
		}
		info, err := entry.Info()
		if err != nil || time.Since(info.ModTime()) < age || !isMine(info) {
			continue
		}
		path := filepath.Join(parent, entry.Name())
		lock, err := filelock.Try(filepath.Join(path, ownerFile), ownerMode)
		if err != nil {
			continue // its process lives
		}
		_ = os.RemoveAll(path)
		lock.Release()
	}
}
