package dirstore

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/hapsnap/hapsnap/snapshots"
)

// temporary begins the names of what is being written or removed. Only the
// holder of the lock makes such names, so whatever bears one when the lock is
// taken was left by a crash.
const temporary = ".tmp-"

// write makes the snapshot's folder and gives it its name as the last thing.
func (s *Store) write(ctx context.Context, snapshot snapshots.Snapshot, written time.Time) error {
	manifest, err := snapshot.Manifest.Marshal()
	if err != nil {
		return fmt.Errorf("encode manifest: %w", err)
	}
	name := snapshot.ID().String()
	folder := s.in(snapshotsDir, temporary+name)
	files := append([]snapshots.File{{Path: snapshots.ManifestFile, Content: manifest}}, snapshot.Files...)
	for _, f := range files {
		if err := s.step("write " + f.Path); err != nil {
			return err
		}
		if err := writeFile(filepath.Join(folder, filepath.FromSlash(f.Path)), f.Content, written); err != nil {
			return err
		}
	}
	if err := syncFolders(folder); err != nil {
		return err
	}
	return s.publish(ctx, folder, s.in(snapshotsDir, name))
}

// writeChannel replaces the channel.
func (s *Store) writeChannel(ctx context.Context, data []byte, written time.Time) error {
	if err := s.step("write channel"); err != nil {
		return err
	}
	file := s.in(temporary + channelFile)
	if err := writeFile(file, data, written); err != nil {
		return err
	}
	return s.publish(ctx, file, s.in(channelFile))
}

// publish gives what was written its name: the point of no return.
func (s *Store) publish(ctx context.Context, from, to string) error {
	if err := s.step("before rename"); err != nil {
		return err
	}
	if err := ctx.Err(); err != nil {
		return err
	}
	if err := os.Rename(from, to); err != nil {
		return err
	}
	if err := s.step("after rename"); err != nil {
		return err
	}
	return syncFolder(filepath.Dir(to))
}

// remove takes a snapshot's name away before its files, so that it is there
// whole or not at all.
func (s *Store) remove(ctx context.Context, id snapshots.ID) error {
	folder := s.in(snapshotsDir, temporary+id.String())
	if err := s.publish(ctx, s.in(snapshotsDir, id.String()), folder); err != nil {
		return err
	}
	return os.RemoveAll(folder)
}

// sweep removes what a writer left that did not live to finish.
func (s *Store) sweep() error {
	for _, folder := range []string{s.path, s.in(snapshotsDir)} {
		entries, err := os.ReadDir(folder)
		if err != nil && !missing(err) {
			return err
		}
		for _, entry := range entries {
			if !strings.HasPrefix(entry.Name(), temporary) {
				continue
			}
			if err := os.RemoveAll(filepath.Join(folder, entry.Name())); err != nil {
				return err
			}
			s.log.Info("removed a half-written file", "store", s.String(), "file", entry.Name())
		}
	}
	return nil
}

// writeFile writes a file and its folders, and brings it to the disk. A zero
// time leaves the file's time as it is.
func writeFile(path string, content []byte, written time.Time) error {
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return err
	}
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o644)
	if err != nil {
		return err
	}
	defer f.Close()
	if _, err := f.Write(content); err != nil {
		return err
	}
	if err := f.Sync(); err != nil {
		return err
	}
	if err := f.Close(); err != nil {
		return err
	}
	return os.Chtimes(path, written, written)
}

// syncFolders brings the entries of a folder, and of those in it, to the disk.
func syncFolders(folder string) error {
	return filepath.WalkDir(folder, func(path string, entry os.DirEntry, err error) error {
		if err != nil || !entry.IsDir() {
			return err
		}
		return syncFolder(path)
	})
}

func syncFolder(path string) error {
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	defer f.Close()
	return f.Sync()
}
