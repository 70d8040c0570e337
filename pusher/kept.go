package pusher

import (
	"errors"
	"fmt"
	"os"
	"strings"

	"github.com/hapsnap/hapsnap/snapshots"
)

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
