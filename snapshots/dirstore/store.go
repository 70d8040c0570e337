// Package dirstore keeps snapshots in a directory, for people, demos and tests:
//
//	PATH/snapshots/r000123-9f3ac01b2d/   haproxy.cfg, snapshot.yaml, maps/ …
//	PATH/channel.yaml                    what people say should run
//	PATH/.newest                         the snapshot that was published last
//
// It promises that a reader never sees half of anything: a snapshot is written beside the others under
// a name that begins with a dot, brought to the disk, and then renamed; so is the channel. A writer
// that fails leaves its unfinished files, since a killed process could not remove them either: the next
// writer does. Only on a full disk does it remove them itself. Writers exclude each other, in one process
// or several, with a lock on PATH/.lock. Readers take no lock and may have the directory read-only.
//
// A directory that does not exist is an error for readers; the first Publish makes it. The directory
// should be local: where a network file system has no working locks, racing writers may fail, but
// nothing is lost.
package dirstore

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/hapsnap/hapsnap/internal/filelock"
	"github.com/hapsnap/hapsnap/snapshots"
	"github.com/hapsnap/hapsnap/snapshots/channel"
	"github.com/hapsnap/hapsnap/snapshots/stores/sequence"
)

// The names inside the directory of a store.
const (
	snapshotsDir = "snapshots"
	channelFile  = "channel.yaml"
	lockFile     = ".lock"
	// newestFile has the ID of the snapshot that was published last. If somebody removes that snapshot's folder, its
	// revision is not given to another one.
	newestFile = ".newest"
)

// Options configure a store. The zero value is fine.
type Options struct {
	Log *slog.Logger // default: discards
}

// Store is a directory of snapshots. It is safe for concurrent use, also by
// several processes.
type Store struct {
	path string
	log  *slog.Logger

	mu       sync.Mutex    // guards head, sight and believed
	head     sequence.Head // the newest snapshot that this Store wrote or verified
	sight    string        // what its files looked like then, see look
	believed bool          // there was a channel

	// step is called at each point where the process could be killed. Tests
	// set it; an error from it ends the call there and then.
	step func(string) error
	// entries returns what is in a folder, in no order. Tests count the calls.
	entries func(folder string) ([]fs.DirEntry, error)
}

// Open names the directory of a store. Nothing is read or made.
func Open(path string, o Options) *Store {
	return &Store{
		path: filepath.Clean(path),
		log:  cmp.Or(o.Log, slog.New(slog.DiscardHandler)),
		step: func(string) error { return nil }, entries: entriesOf,
	}
}

// String returns the store's URL.
func (s *Store) String() string { return "dir:" + s.path }

// Close does nothing.
func (s *Store) Close() error { return nil }

// Publish writes the draft as the newest snapshot. A draft with the content of
// the newest is not written: its ID is returned, and false. A newest snapshot
// that is corrupt is followed by the next revision.
func (s *Store) Publish(ctx context.Context, d snapshots.Draft) (snapshots.ID, bool, error) {
	if err := sequence.CheckAlone(d); err != nil {
		return snapshots.ID{}, false, err
	}
	if err := s.makeFolders(); err != nil {
		return snapshots.ID{}, false, fmt.Errorf("make %s: %w", s, err)
	}
	newest, unlock, err := s.lock(ctx)
	if err != nil {
		return snapshots.ID{}, false, err
	}
	defer unlock()
	head, err := s.verifiedHead(newest)
	if err != nil {
		return snapshots.ID{}, false, err
	}
	next, changed, err := sequence.Next(head, d)
	if err != nil || !changed {
		return head.ID, false, err
	}
	if given := s.given(); given >= next.ID().Revision && given-next.ID().Revision < maxSkip {
		next = d.Number(given+1, head.ID)
	}
	if err := s.write(ctx, next, d.Time); err != nil {
		if errors.Is(err, syscall.ENOSPC) || errors.Is(err, syscall.EDQUOT) { // others need the room until the next writer comes
			_ = os.RemoveAll(s.in(snapshotsDir, temporary+next.ID().String()))
		}
		return snapshots.ID{}, false, fmt.Errorf("write snapshot %s: %w", next.ID(), err)
	}
	s.remember(sequence.HeadOf(next), s.look(next.ID()))
	if err := s.step("before note " + next.ID().String()); err != nil {
		return snapshots.ID{}, false, err
	}
	if err := s.note(next.ID(), d.Time); err != nil { // it is published nevertheless
		s.log.Warn("if this snapshot is removed by hand before the next one is published, that one gets the same number",
			"store", s.String(), "snapshot", next.ID().String(), "err", err)
	}
	return next.ID(), true, nil
}

// note writes down which snapshot was published last.
func (s *Store) note(id snapshots.ID, written time.Time) error {
	file := s.in(temporary + newestFile)
	if err := writeFile(file, []byte(id.String()+"\n"), written); err != nil {
		return err
	}
	return os.Rename(file, s.in(newestFile))
}

// maxSkip is how far ahead a snapshot that was removed may be to still be made way for. Otherwise one with the last
// possible revision would leave no room for more snapshots.
const maxSkip = 1_000_000

// given returns the last revision that was given, as far as the store says. What is no ID says nothing.
func (s *Store) given() uint64 {
	data, _ := readFile(os.DirFS(s.path), newestFile, 100)
	id, _ := snapshots.ParseID(strings.TrimSpace(string(data)))
	return id.Revision
}

// makeFolders makes the folders of the store, and brings to the disk that they are there.
func (s *Store) makeFolders() error {
	folder := s.in(snapshotsDir)
	var above []string // of those that are made, the innermost first
	for path := folder; ; path = filepath.Dir(path) {
		if _, err := os.Stat(path); !missing(err) {
			break
		}
		above = append(above, filepath.Dir(path))
	}
	if err := os.MkdirAll(folder, 0o755); err != nil {
		return err
	}
	for _, path := range above {
		if err := s.step("sync " + path); err != nil {
			return err
		}
		if err := syncFolder(path); err != nil {
			return err
		}
	}
	return nil
}

// UpdateChannel lets edit change the channel, and writes the result. If edit returns an error,
// UpdateChannel returns it and writes nothing.
func (s *Store) UpdateChannel(ctx context.Context, subject string, now time.Time, edit func(*channel.Channel) error) error {
	if _, err := s.list(); err != nil {
		return err
	}
	_, unlock, err := s.lock(ctx)
	if err != nil {
		return err
	}
	defer unlock()
	current, err := s.channel()
	if err != nil {
		return err
	}
	data, act, changed, err := sequence.EditBy(current, edit)
	if err != nil || !changed {
		return err
	}
	// The act is written down that is about to be done. A journal that cannot be read keeps nobody from acting.
	_, unreadable := s.journal()
	if unreadable == nil {
		if err := s.announce(ctx, announcement{channelSum(data), act.Entry(subject, now)}, now); err != nil {
			return err
		}
	}
	if err := s.step("write channel"); err != nil {
		return fmt.Errorf("write channel (%s): %w", subject, err)
	}
	file := s.in(temporary + channelFile)
	if err := writeFile(file, data, now); err != nil {
		return fmt.Errorf("write channel (%s): %w", subject, err)
	}
	if err := s.publish(ctx, file, s.in(channelFile)); err != nil {
		return fmt.Errorf("write channel (%s): %w", subject, err)
	}
	if unreadable != nil {
		return fmt.Errorf("the channel is changed (%s), and its journal does not say so: %w", subject, unreadable)
	}
	if err := s.record(ctx, now); err != nil { // the next writer does it
		return fmt.Errorf("the channel is changed (%s), and its journal is not yet: %w", subject, err)
	}
	return nil
}

// Delete removes snapshots. It skips those that are not there. If the newest is among them, it refuses
// and removes nothing.
func (s *Store) Delete(ctx context.Context, ids ...snapshots.ID) error {
	if _, err := s.list(); err != nil {
		return err
	}
	_, unlock, err := s.lock(ctx)
	if err != nil {
		return err
	}
	defer unlock()
	stored, err := s.list()
	if err != nil {
		return err
	}
	if n := len(stored); n > 0 && slices.Contains(ids, stored[n-1]) {
		return fmt.Errorf("delete snapshot %s: it is the newest", stored[n-1])
	}
	for _, id := range ids {
		if !slices.Contains(stored, id) {
			continue
		}
		// The name goes before the files, so that a snapshot is there whole or not at all.
		folder := s.in(snapshotsDir, temporary+id.String())
		if err := s.publish(ctx, s.in(snapshotsDir, id.String()), folder); err != nil {
			return fmt.Errorf("delete snapshot %s: %w", id, err)
		}
		if err := os.RemoveAll(folder); err != nil {
			return fmt.Errorf("delete snapshot %s: %w", id, err)
		}
	}
	return nil
}

// verifiedHead returns the newest snapshot after verifying it. It skips that if this Store verified it before
// and its files look the same; if not, they may be damaged.
func (s *Store) verifiedHead(newest snapshots.ID) (sequence.Head, error) {
	if newest.IsZero() {
		return sequence.Head{}, nil
	}
	sight := s.look(newest)
	s.mu.Lock()
	known, before := s.head, s.sight
	s.mu.Unlock()
	if known.ID == newest && sight != "" && sight == before {
		return known, nil
	}
	head, err := s.read(newest)
	if errors.Is(err, snapshots.ErrCorrupt) {
		s.log.Warn("the newest snapshot is corrupt, publishing the next one on top of it", "store", s.String(), "snapshot", newest.String(), "err", err)
		return sequence.Head{ID: newest}, nil
	}
	if err != nil {
		return sequence.Head{}, err
	}
	return s.remember(sequence.HeadOf(head), sight), nil
}

// look returns the names, types, sizes and times of a snapshot's files, or "" if it cannot. It opens no file.
func (s *Store) look(id snapshots.ID) string {
	var sight strings.Builder
	folder := s.in(snapshotsDir, id.String())
	err := filepath.WalkDir(folder, func(path string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if entry.IsDir() { // its time changes with files that come and go, which are seen themselves
			return nil
		}
		info, err := entry.Info()
		if err != nil {
			return err
		}
		fmt.Fprintf(&sight, "%q %s %d %d\n", path, info.Mode(), info.Size(), info.ModTime().UnixNano())
		return nil
	})
	if err != nil {
		return ""
	}
	return sight.String()
}

// Remember tells the store what a reader saw of it before, as [channel.View.Seen] says.
func (s *Store) Remember(seen channel.Seen) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.believed = seen.Of(s.String()).Channel != ""
}

// remembered returns what Remember needs. Neither the bytes of a file nor its time prove an order, so it only
// says whether there was a channel.
func (s *Store) remembered() channel.Seen {
	s.mu.Lock()
	defer s.mu.Unlock()
	seen := channel.Seen{Store: s.String()}
	if s.believed {
		seen.Channel = channelFile
	}
	return seen
}

// believe records whether there is a channel. It returns an error for a channel that is gone.
func (s *Store) believe(there bool) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.believed && !there {
		return fmt.Errorf("read %s: %w", s.in(channelFile), &channel.RewoundError{Channel: channelFile, Message: "it is gone, and was there"})
	}
	s.believed = there
	return nil
}

func (s *Store) remember(h sequence.Head, sight string) sequence.Head {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.head, s.sight = h, sight
	return h
}

// in returns a path inside the store.
func (s *Store) in(elements ...string) string {
	return filepath.Join(append([]string{s.path}, elements...)...)
}

// missing reports whether err says that a file is not there.
func missing(err error) bool { return errors.Is(err, fs.ErrNotExist) }

// lock waits until no other writer holds the store, removes what a killed writer left, and returns the newest snapshot,
// zero if there is none. The kernel releases the lock when the process ends.
func (s *Store) lock(ctx context.Context) (newest snapshots.ID, unlock func(), err error) {
	if err := ctx.Err(); err != nil {
		return snapshots.ID{}, nil, fmt.Errorf("lock %s: %w", s, err)
	}
	lock, err := filelock.Wait(ctx, s.in(lockFile), 0o644)
	if err != nil {
		return snapshots.ID{}, nil, fmt.Errorf("lock %s: %w", s, err)
	}
	if newest, err = s.sweep(); err != nil {
		lock.Release()
		return snapshots.ID{}, nil, fmt.Errorf("clean up %s: %w", s, err)
	}
	return newest, lock.Release, nil
}

// temporary begins the names of what is being written or removed. Only the holder of the lock makes
// such names, so that one which is there when the lock is taken was left by a crash.
const temporary = ".tmp-"

// write makes the snapshot's folder, and gives it its name last.
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
	if err := filepath.WalkDir(folder, func(path string, entry os.DirEntry, err error) error {
		if err != nil || !entry.IsDir() {
			return err
		}
		return syncFolder(path)
	}); err != nil {
		return err
	}
	return s.publish(ctx, folder, s.in(snapshotsDir, name))
}

// publish gives a finished file or folder its name: the point of no return.
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

// sweep removes what a writer left that was killed, and returns the newest snapshot. It reads each folder once, which is
// all that a publish does for each old snapshot: the time of a folder does not prove that nothing in it changed.
func (s *Store) sweep() (newest snapshots.ID, err error) {
	name := "" // of the newest
	for _, folder := range []string{s.path, s.in(snapshotsDir)} {
		entries, err := s.entries(folder)
		if err != nil && !missing(err) {
			return snapshots.ID{}, err
		}
		for _, entry := range entries {
			switch {
			case strings.HasPrefix(entry.Name(), temporary):
				if err := os.RemoveAll(filepath.Join(folder, entry.Name())); err != nil {
					return snapshots.ID{}, err
				}
				s.log.Info("removed a half-written file", "store", s.String(), "file", entry.Name())
			case folder == s.path || !entry.IsDir() || len(entry.Name()) == len(name) && entry.Name() < name:
				// No snapshot, or an older one: names of the same length are in the order of their revisions.
			default:
				if id, err := snapshots.ParseID(entry.Name()); err == nil && id.Compare(newest) > 0 {
					newest, name = id, entry.Name()
				}
			}
		}
	}
	return newest, nil
}

// entriesOf returns what is in a folder, in no order.
func entriesOf(folder string) ([]fs.DirEntry, error) {
	f, err := os.Open(folder)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	return f.ReadDir(-1)
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

func syncFolder(path string) error {
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	defer f.Close()
	return f.Sync()
}
