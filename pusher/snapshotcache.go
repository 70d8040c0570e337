package pusher

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/hapsnap/hapsnap/snapshots"
)

// fetchTimeout bounds the reading of one snapshot, and fetchRetry is the wait
// after one that could not be read.
const (
	fetchTimeout = time.Minute
	fetchRetry   = 2 * time.Second
	// keepRetry is the wait after one that could not be kept on this machine's disk, and
	// temporaryAge how old what was left half-written there is before it is removed: other
	// pushers may have the same folder.
	keepRetry    = 10 * time.Second
	temporaryAge = time.Hour
)

// snapshotCache holds the snapshots in use, in memory and on this machine's disk: what
// runs must stay at hand when the store is gone or has lost it.
type snapshotCache struct {
	dir    string
	have   map[snapshots.ID]snapshots.Snapshot
	asked  map[snapshots.ID]bool
	failed map[snapshots.ID]missing
	// unkept are at hand, and not on disk.
	unkept map[snapshots.ID]missing
}

// notKeptError says why a snapshot that was read is not on this machine's disk.
type notKeptError struct{ cause error }

func (e *notKeptError) Error() string { return e.cause.Error() }

// missing is a snapshot that could not be read.
type missing struct {
	err error
	at  time.Time
}

func newSnapshotCache(dir string) *snapshotCache {
	return &snapshotCache{
		dir: dir, have: map[snapshots.ID]snapshots.Snapshot{},
		asked: map[snapshots.ID]bool{}, failed: map[snapshots.ID]missing{},
		unkept: map[snapshots.ID]missing{},
	}
}

// due returns which of the needed snapshots are to be read now, and notes that
// they are asked for.
func (l *snapshotCache) due(needed []snapshots.ID, now time.Time) []snapshots.ID {
	var out []snapshots.ID
	for _, id := range needed {
		_, have := l.have[id]
		m, failed := l.failed[id]
		if have || l.asked[id] || (failed && now.Sub(m.at) < fetchRetry) {
			continue
		}
		l.asked[id] = true
		out = append(out, id)
	}
	return out
}

// take notes how reading a snapshot ended.
func (l *snapshotCache) take(id snapshots.ID, s snapshots.Snapshot, err error, now time.Time) {
	delete(l.asked, id)
	delete(l.unkept, id)
	if unkept, ok := errors.AsType[*notKeptError](err); ok {
		l.unkept[id] = missing{unkept, now}
		err = nil
	}
	if err != nil {
		l.failed[id] = missing{err, now}
		return
	}
	delete(l.failed, id)
	l.have[id] = s
}

// keep drops the snapshots that are not needed.
func (l *snapshotCache) keep(needed map[snapshots.ID]bool) (dropped []snapshots.ID) {
	for id := range l.have {
		if !needed[id] {
			delete(l.have, id)
			dropped = append(dropped, id)
		}
	}
	for _, list := range []map[snapshots.ID]missing{l.failed, l.unkept} {
		for id := range list {
			if !needed[id] {
				delete(list, id)
			}
		}
	}
	return dropped
}

// keepAgain returns the snapshots that are to be kept on disk once more, and notes that
// they are about to be.
func (l *snapshotCache) keepAgain(now time.Time) []snapshots.Snapshot {
	var out []snapshots.Snapshot
	for id, m := range l.unkept {
		if now.Sub(m.at) >= keepRetry && !l.asked[id] {
			l.asked[id] = true
			out = append(out, l.have[id])
		}
	}
	return out
}

// trouble returns why snapshots in use are not on this machine's disk.
func (l *snapshotCache) trouble() error {
	for _, m := range l.unkept {
		return fmt.Errorf("keep the snapshots in use in %s, for when the store is gone: %w", l.dir, m.err)
	}
	return nil
}

// fetch reads a snapshot from this machine's disk, else from the store.
func fetch(ctx context.Context, store Store, dir string, id snapshots.ID) (snapshots.Snapshot, error) {
	if s, err := readKept(dir, id); err == nil {
		return s, nil
	}
	ctx, cancel := context.WithTimeout(ctx, fetchTimeout)
	defer cancel()
	s, err := store.Get(ctx, id)
	if err != nil {
		return snapshots.Snapshot{}, fmt.Errorf("read snapshot %s: %w", id, err)
	}
	return s, keep(dir, s)
}

// keep keeps a snapshot on this machine's disk. It is at hand in any case, but not after a
// restart.
func keep(dir string, s snapshots.Snapshot) error {
	if err := keepOnDisk(dir, s); err != nil {
		return &notKeptError{ofFile(dir, err)}
	}
	return nil
}

func keptFile(dir string, id snapshots.ID) string { return filepath.Join(dir, id.String()+".json") }

func readKept(dir string, id snapshots.ID) (snapshots.Snapshot, error) {
	if dir == "" {
		return snapshots.Snapshot{}, fs.ErrNotExist
	}
	data, err := os.ReadFile(keptFile(dir, id))
	if err != nil {
		return snapshots.Snapshot{}, err
	}
	var s snapshots.Snapshot
	if err := json.Unmarshal(data, &s); err != nil {
		return snapshots.Snapshot{}, err
	}
	if err := s.Verify(); err != nil {
		return snapshots.Snapshot{}, err
	}
	if s.ID() != id {
		return snapshots.Snapshot{}, fmt.Errorf("%w: %s is kept as %s", snapshots.ErrCorrupt, s.ID(), id)
	}
	return s, nil
}

func keepOnDisk(dir string, s snapshots.Snapshot) error {
	if dir == "" {
		return nil
	}
	data, err := json.Marshal(s)
	if err != nil {
		return err
	}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return err
	}
	return replaceFile(keptFile(dir, s.ID()), data)
}

// forget removes the snapshots on disk that are not needed.
func forget(dir string, needed map[snapshots.ID]bool) {
	if dir == "" {
		return
	}
	entries, err := os.ReadDir(dir)
	if err != nil {
		return // there are none
	}
	for _, entry := range entries {
		id, err := snapshots.ParseID(strings.TrimSuffix(entry.Name(), ".json"))
		if err == nil && !needed[id] {
			_ = os.Remove(filepath.Join(dir, entry.Name()))
		}
	}
}

// KeptFolder returns the directory with the snapshots in use, beside a state file.
func KeptFolder(state string) string { return state + ".snapshots" }

// ErrNotKept is returned for a snapshot that is not beside the state of a pusher.
var ErrNotKept = errors.New("the pusher has not kept it")

// KeptSnapshot returns a snapshot with the content of another from the folder in which a
// pusher keeps what is in use, verified. The error wraps [ErrNotKept] where it is not
// among them.
func KeptSnapshot(dir string, like snapshots.ID) (snapshots.Snapshot, error) {
	entries, err := os.ReadDir(dir)
	if err != nil && !os.IsNotExist(err) {
		return snapshots.Snapshot{}, fmt.Errorf("read what the pusher has kept: %w", err)
	}
	for _, entry := range entries {
		id, err := snapshots.ParseID(strings.TrimSuffix(entry.Name(), ".json"))
		if err == nil && id.Short == like.Short {
			return readKept(dir, id)
		}
	}
	return snapshots.Snapshot{}, fmt.Errorf("%w in %s", ErrNotKept, dir)
}

// removeTemporaries removes what is left in a folder of files that were being written, see
// [replaceFile], when a pusher was killed. Those of another that may write there are
// younger than the age given.
func removeTemporaries(dir string, age time.Duration, names ...string) {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return // there is none, or what comes next says what is wrong
	}
	for _, entry := range entries {
		for _, name := range names {
			if !isTemporary(entry.Name(), name) || !entry.Type().IsRegular() {
				continue
			}
			if info, err := entry.Info(); err == nil && time.Since(info.ModTime()) >= age {
				_ = os.Remove(filepath.Join(dir, entry.Name()))
			}
		}
	}
}

// isTemporary reports whether a name is of a temporary file for one of a given name, of
// which "*" at the beginning stands for anything.
func isTemporary(name, of string) bool {
	rest, hidden := strings.CutPrefix(name, ".")
	dot := strings.LastIndexByte(rest, '.')
	if !hidden || dot < 0 || rest[dot+1:] == "" || strings.Trim(rest[dot+1:], "0123456789") != "" {
		return false
	}
	if end, anything := strings.CutPrefix(of, "*"); anything {
		return strings.HasSuffix(rest[:dot], end)
	}
	return rest[:dot] == of
}
