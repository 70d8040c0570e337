package dirstore

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"slices"
	"strings"

	"github.com/hapsnap/hapsnap/snapshots"
	"github.com/hapsnap/hapsnap/snapshots/channel"
)

// View returns the IDs of all snapshots and the channel. An empty directory is
// an empty store; one that cannot be read is an error.
func (s *Store) View(ctx context.Context) (channel.View, error) {
	ids, err := s.IDs(ctx)
	if err != nil {
		return channel.View{}, err
	}
	current, err := s.channel()
	if err != nil {
		return channel.View{}, err
	}
	return channel.View{IDs: ids, Channel: current, Seen: s.remembered()}, nil
}

// IDs returns the IDs of all snapshots, the newest last. The channel is not read.
func (s *Store) IDs(ctx context.Context) ([]snapshots.ID, error) {
	if err := ctx.Err(); err != nil {
		return nil, fmt.Errorf("read %s: %w", s, err)
	}
	return s.list()
}

// Get returns a snapshot whose every digest has been verified. The error wraps
// [snapshots.ErrNotFound] or [snapshots.ErrCorrupt] where one of them is why.
func (s *Store) Get(ctx context.Context, id snapshots.ID) (snapshots.Snapshot, error) {
	if err := s.find(ctx, id); err != nil {
		return snapshots.Snapshot{}, err
	}
	snapshot, err := s.read(id)
	if err != nil {
		return snapshots.Snapshot{}, s.unlessDeleted(ctx, id, err)
	}
	return snapshot, nil
}

// Manifest returns the manifest of a snapshot without reading its files.
func (s *Store) Manifest(ctx context.Context, id snapshots.ID) (snapshots.Manifest, error) {
	if err := s.find(ctx, id); err != nil {
		return snapshots.Manifest{}, err
	}
	root, err := os.OpenRoot(s.in(snapshotsDir, id.String()))
	if err != nil {
		return snapshots.Manifest{}, s.unlessDeleted(ctx, id, err)
	}
	defer root.Close()
	manifest, err := readManifest(root.FS(), id)
	if err != nil {
		return snapshots.Manifest{}, s.unlessDeleted(ctx, id, err)
	}
	return manifest, nil
}

// find returns an error that wraps [snapshots.ErrNotFound] if the store, which
// is there, does not hold the snapshot.
func (s *Store) find(ctx context.Context, id snapshots.ID) error {
	if err := ctx.Err(); err != nil {
		return fmt.Errorf("read snapshot %s: %w", id, err)
	}
	ids, err := s.list()
	if err != nil {
		return err
	}
	if _, ok := slices.BinarySearchFunc(ids, id, snapshots.ID.Compare); !ok {
		return fmt.Errorf("snapshot %s in %s: %w", id, s, snapshots.ErrNotFound)
	}
	return nil
}

// unlessDeleted returns err, or an error that says the snapshot is not there if it was deleted while it
// was being read: half a directory is no corruption then.
func (s *Store) unlessDeleted(ctx context.Context, id snapshots.ID, err error) error {
	if gone := s.find(ctx, id); gone != nil {
		return gone
	}
	return err
}

// list returns the IDs of the snapshots, ascending. Anything else in the folder, such as a half-written
// snapshot, has a name that is no ID.
func (s *Store) list() ([]snapshots.ID, error) {
	info, err := os.Stat(s.path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("read %s: there is no such directory: %w", s, err)
	}
	if err != nil {
		return nil, fmt.Errorf("read %s: %w", s, err)
	}
	if !info.IsDir() {
		return nil, fmt.Errorf("read %s: not a directory", s)
	}
	entries, err := os.ReadDir(s.in(snapshotsDir))
	if err != nil && !missing(err) {
		return nil, fmt.Errorf("read %s: %w", s, err)
	}
	var ids []snapshots.ID
	for _, entry := range entries {
		if id, err := snapshots.ParseID(entry.Name()); err == nil && entry.IsDir() {
			ids = append(ids, id)
		}
	}
	slices.SortFunc(ids, snapshots.ID.Compare)
	return ids, nil
}

// read returns a snapshot that is there, verified.
func (s *Store) read(id snapshots.ID) (snapshots.Snapshot, error) {
	root, err := os.OpenRoot(s.in(snapshotsDir, id.String()))
	if err != nil {
		return snapshots.Snapshot{}, fmt.Errorf("read snapshot %s: %w", id, err)
	}
	defer root.Close()
	manifest, err := readManifest(root.FS(), id)
	if err != nil {
		return snapshots.Snapshot{}, err
	}
	files, err := readFiles(root.FS(), manifest.Spec.Files)
	if err != nil {
		return snapshots.Snapshot{}, fmt.Errorf("read snapshot %s: %w", id, err)
	}
	snapshot := snapshots.Snapshot{Manifest: manifest, Files: files}
	if err := snapshot.Verify(); err != nil {
		return snapshots.Snapshot{}, fmt.Errorf("read snapshot %s: %w", id, err)
	}
	return snapshot, nil
}

func readManifest(dir fs.FS, id snapshots.ID) (snapshots.Manifest, error) {
	data, err := readFile(dir, snapshots.ManifestFile, snapshots.MaxManifest)
	if missing(err) {
		return snapshots.Manifest{}, fmt.Errorf("read snapshot %s: %w: %s is missing", id, snapshots.ErrCorrupt, snapshots.ManifestFile)
	}
	if err != nil {
		return snapshots.Manifest{}, fmt.Errorf("read snapshot %s: %w", id, err)
	}
	manifest, err := snapshots.ParseManifest(data)
	if err != nil {
		return snapshots.Manifest{}, fmt.Errorf("read snapshot %s: %w", id, err)
	}
	if named := snapshots.NewID(manifest.Spec.Revision, manifest.Spec.Digest); named != id {
		return snapshots.Manifest{}, fmt.Errorf("read snapshot %s: %w: it holds %s", id, snapshots.ErrCorrupt, named)
	}
	return manifest, nil
}

// readFile returns the content of a regular file that has no more than so many bytes. It opens no other
// file: reading from a pipe could take for ever.
func readFile(dir fs.FS, path string, most int64) ([]byte, error) {
	info, err := fs.Stat(dir, path)
	switch {
	case err != nil:
		return nil, err
	case !info.Mode().IsRegular():
		return nil, fmt.Errorf("%w: %s is not a regular file", snapshots.ErrCorrupt, path)
	case info.Size() > most:
		return nil, fmt.Errorf("%w: %s has %d bytes, more than the %d that it may have", snapshots.ErrCorrupt, path, info.Size(), most)
	}
	file, err := dir.Open(path)
	if err != nil {
		return nil, err
	}
	defer file.Close()
	data := make([]byte, info.Size())
	n, err := io.ReadFull(file, data)
	if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) { // it was cut meanwhile: its digest tells
		err = nil
	}
	return data[:n], err
}

// readFiles returns the files that the manifest lists, sorted by path. A link or another special file
// is no part of any snapshot.
func readFiles(dir fs.FS, listed []snapshots.FileDigest) ([]snapshots.File, error) {
	sizes := map[string]int64{}
	for _, f := range listed {
		sizes[f.Path] = f.Size
	}
	var files []snapshots.File
	err := fs.WalkDir(dir, ".", func(path string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() || path == snapshots.ManifestFile {
			return err
		}
		if !entry.Type().IsRegular() {
			return fmt.Errorf("%w: %s is not a regular file", snapshots.ErrCorrupt, path)
		}
		size, found := sizes[path]
		if !found {
			return fmt.Errorf("%w: %s is not in the manifest", snapshots.ErrCorrupt, path)
		}
		content, err := readFile(dir, path, size)
		files = append(files, snapshots.File{Path: path, Content: content})
		return err
	})
	slices.SortFunc(files, func(a, b snapshots.File) int { return strings.Compare(a.Path, b.Path) })
	return files, err
}

// channel returns the channel. Without a file it is the empty channel, in which nobody has said
// anything. It returns an error, and never the empty channel, if the file cannot be read, or was there
// before and is gone.
func (s *Store) channel() (channel.Channel, error) {
	data, err := readFile(os.DirFS(s.path), channelFile, channel.MaxSize)
	if missing(err) {
		return channel.Channel{}, s.believe(false)
	}
	if err != nil {
		return channel.Channel{}, fmt.Errorf("read channel: %w", err)
	}
	current, err := channel.Parse(data)
	if err != nil {
		return channel.Channel{}, fmt.Errorf("read %s: %w", s.in(channelFile), err)
	}
	return current, s.believe(true)
}
