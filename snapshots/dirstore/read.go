package dirstore

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/fsnotify/fsnotify"

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
	entries, err := s.entries(s.in(snapshotsDir))
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
	// A link or another special file is no part of any snapshot.
	dir := root.FS()
	sizes := map[string]int64{}
	for _, f := range manifest.Spec.Files {
		sizes[f.Path] = f.Size
	}
	var files []snapshots.File
	err = fs.WalkDir(dir, ".", func(path string, entry fs.DirEntry, err error) error {
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
	if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) { // it was cut meanwhile; the digest shows that
		err = nil
	}
	return data[:n], err
}

// channel returns the channel. Without a file it is the empty channel. If the file cannot be read, or existed
// before and is gone, it returns an error, and never the empty channel.
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

// The journal of a store: a line of JSON for each entry. What is about to be done to the channel is
// announced in a file of its own first, and gets into the journal after that. A writer that is killed in
// between leaves the announcement to the next one, which knows by the channel whether it was done.
const (
	journalFile  = "journal.jsonl"
	announceFile = "journal-next.json"
)

// announcement is an act that was not in the journal yet when it was written.
type announcement struct {
	Channel string        `json:"channel"` // the SHA-256 of the channel in which it is done
	Entry   channel.Entry `json:"entry"`
}

func channelSum(data []byte) string {
	sum := sha256.Sum256(data)
	return hex.EncodeToString(sum[:])
}

// Journal returns the known acts on the channel and entries about rollouts, the oldest first.
func (s *Store) Journal(ctx context.Context) ([]channel.Entry, error) {
	if err := ctx.Err(); err != nil {
		return nil, fmt.Errorf("read the journal of %s: %w", s, err)
	}
	journal, err := s.journal()
	if err != nil {
		return nil, err
	}
	return channel.ParseEntries(journal), nil
}

// Record adds entries about rollouts to the journal.
func (s *Store) Record(ctx context.Context, now time.Time, entries ...channel.Entry) error {
	if _, err := s.list(); err != nil { // no store is made by its journal
		return err
	}
	_, unlock, err := s.lock(ctx)
	if err != nil {
		return err
	}
	defer unlock()
	return s.record(ctx, now, entries...)
}

// journal reads the journal, with the act that was announced, if that was done.
func (s *Store) journal() ([]byte, error) {
	journal, err := readSome(s.in(journalFile), 2*channel.MaxJournalBytes)
	if err != nil {
		return nil, fmt.Errorf("read the journal of %s: %w", s, err)
	}
	text, err := readSome(s.in(announceFile), channel.MaxJournalBytes)
	if err != nil {
		return nil, fmt.Errorf("read the journal of %s: %w", s, err)
	}
	var next announcement
	if known := json.Unmarshal(text, &next) == nil; !known {
		return journal, nil
	}
	current, err := readSome(s.in(channelFile), channel.MaxSize)
	if err != nil {
		return nil, fmt.Errorf("read the journal of %s: %w", s, err)
	}
	if channelSum(current) != next.Channel {
		return journal, nil
	}
	return channel.AppendEntries(journal, next.Entry)
}

// readSome reads a regular file up to a size. One that is not there is empty.
func readSome(path string, most int64) ([]byte, error) {
	info, err := os.Stat(path)
	switch {
	case missing(err):
		return nil, nil
	case err != nil:
		return nil, err
	case !info.Mode().IsRegular():
		return nil, fmt.Errorf("%s is not a regular file", path)
	}
	f, err := os.Open(path)
	if missing(err) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	defer f.Close()
	return io.ReadAll(io.LimitReader(f, most))
}

// announce says which act is about to be done, after the one before that a writer announced who was killed.
func (s *Store) announce(ctx context.Context, a announcement, now time.Time) error {
	if err := s.record(ctx, now); err != nil {
		return err
	}
	text, err := json.Marshal(a)
	if err != nil {
		return fmt.Errorf("write the journal of %s: %w", s, err)
	}
	return s.replace(ctx, announceFile, text, now)
}

// record writes the journal with the act that was announced, if that was done, and with more entries. The
// caller holds the lock.
func (s *Store) record(ctx context.Context, now time.Time, entries ...channel.Entry) error {
	journal, err := s.journal()
	if err != nil {
		return err
	}
	if journal, err = channel.AppendEntries(journal, entries...); err != nil {
		return fmt.Errorf("write the journal of %s: %w", s, err)
	}
	if len(journal) == 0 {
		return nil
	}
	if err := s.replace(ctx, journalFile, journal, now); err != nil {
		return err
	}
	if err := os.Remove(s.in(announceFile)); err != nil && !missing(err) {
		return fmt.Errorf("write the journal of %s: %w", s, err)
	}
	return nil
}

// replace gives a file another content.
func (s *Store) replace(ctx context.Context, name string, data []byte, now time.Time) error {
	file := s.in(temporary + name)
	if err := writeFile(file, data, now); err != nil {
		return fmt.Errorf("write the journal of %s: %w", s, err)
	}
	if err := s.publish(ctx, file, s.in(name)); err != nil {
		return fmt.Errorf("write the journal of %s: %w", s, err)
	}
	return nil
}

// lookForFolders is how often a folder is looked for that is not there yet, or was made again.
const lookForFolders = time.Second

// Follow calls changed when something in the store may have changed, until ctx is done. Network file systems
// report no changes, so the caller also reads the store regularly. Follow watches only two folders, since a
// snapshot arrives by one rename.
func (s *Store) Follow(ctx context.Context, changed func()) {
	notify, err := fsnotify.NewWatcher()
	if err != nil {
		s.log.Warn("cannot watch the store, polling it", "store", s.String(), "err", err)
		return
	}
	defer notify.Close()
	folders := []string{s.path, s.in(snapshotsDir)}
	ticker := time.NewTicker(lookForFolders)
	defer ticker.Stop()
	for {
		for _, folder := range folders {
			if !slices.Contains(notify.WatchList(), folder) && notify.Add(folder) == nil {
				changed() // what came before is seen now
			}
		}
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		case event := <-notify.Events:
			if s.shows(event.Name) {
				changed()
			}
		case err := <-notify.Errors:
			s.log.Warn("notifications of changes were lost, the store is read again", "store", s.String(), "err", err)
			changed()
		}
	}
}

// shows reports whether readers see a file: the channel, a snapshot, or the folder of snapshots.
func (s *Store) shows(path string) bool {
	folder, name := filepath.Split(path)
	switch filepath.Clean(folder) {
	case s.path:
		return name == channelFile || name == snapshotsDir
	case s.in(snapshotsDir):
		return !strings.HasPrefix(name, ".")
	}
	return false
}
