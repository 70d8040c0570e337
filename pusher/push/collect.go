package push

import (
	"context"
	"errors"

	"github.com/hapsnap/hapsnap/pusher/dataplane"
	"github.com/hapsnap/hapsnap/snapshots"
)

// Stored names a file in a storage of an instance.
type Stored struct {
	Kind snapshots.FileKind `json:"kind"`
	Name string             `json:"name"`
}

// Remove deletes files that nothing needs any more. That is for the caller to
// know: the API only keeps what haproxy.cfg names by its path (that is left
// alone, without an error), and not what a crt-list names.
func (i Instance) Remove(ctx context.Context, files []Stored) error {
	for _, f := range files {
		for _, s := range storages {
			if s.kind != f.Kind {
				continue
			}
			err := i.API.DeleteFile(ctx, s.storage, f.Name)
			if err != nil && !errors.Is(err, dataplane.ErrNotFound) && !errors.Is(err, dataplane.ErrConflict) {
				return err
			}
		}
	}
	return nil
}
