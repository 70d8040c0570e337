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

	"github.com/hapsnap/hapsnap/internal/wholefile"
	"github.com/hapsnap/hapsnap/pusher/binding"
	"github.com/hapsnap/hapsnap/snapshots"
)

const (
	// fetchTimeout bounds the reading of one snapshot.
	fetchTimeout = time.Minute
	// temporaryAge is how old what was left half-written on this machine's disk is before it is
	// removed: other pushers may have the same folder.
	temporaryAge = time.Hour
)

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
		return &binding.NotKeptError{Cause: wholefile.OfFile(dir, err)}
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
	return wholefile.Replace(keptFile(dir, s.ID()), data)
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
