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

// Remove deletes files that nothing needs any more, and returns those that are gone. That
// nothing does is for the caller to know: the API only keeps what haproxy.cfg names by its
// path (that stays, without an error), and not what a crt-list names.
func (i Instance) Remove(ctx context.Context, files []Stored) (removed []Stored, err error) {
	for _, f := range files {
		for _, s := range storages {
			if s.kind != f.Kind {
				continue
			}
			err := i.API.DeleteFile(ctx, s.storage, f.Name)
			switch {
			case errors.Is(err, dataplane.ErrConflict):
			case err != nil && !errors.Is(err, dataplane.ErrNotFound):
				return removed, err
			default:
				removed = append(removed, f)
			}
		}
	}
	return removed, nil
}
