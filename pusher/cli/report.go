package cli

import (
	"context"

	"github.com/hapsnap/hapsnap/snapshots/stores"
)

// reporting returns how the pusher reports the condition of its fleet: beside the
// snapshots, if the store has a place for it. Otherwise it is nil.
func reporting(store stores.Store) func(ctx context.Context, fields map[string]string) error {
	place, ok := store.(interface {
		SetStatus(ctx context.Context, fields map[string]string) error
	})
	if !ok {
		return nil
	}
	return place.SetStatus
}
