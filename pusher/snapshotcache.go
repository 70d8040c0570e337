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
	// temporaryAge is the age at which half-written files on this host's disk are removed. Younger ones
	// may be another pusher's, which uses the same folder.
	temporaryAge = time.Hour
)

// fetch reads a snapshot from this host's disk, or, if it is not there, from the store.
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

// keep keeps a snapshot on this host's disk for a restart. If that fails, the snapshot is usable all
// the same, which [binding.NotKeptError] says.
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

// forget removes unneeded snapshots from disk.
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

// KeptFolder returns the directory beside a state file that has the snapshots in use.
func KeptFolder(state string) string { return state + ".snapshots" }

// ErrNotKept is returned for a snapshot that is not in the pusher's folder.
var ErrNotKept = errors.New("the pusher has not kept it")

// KeptSnapshot returns a snapshot with the same content as another, verified, from the folder in which
// a pusher keeps the snapshots in use. The error wraps [ErrNotKept] if there is none.
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
