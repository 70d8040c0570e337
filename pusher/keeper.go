package pusher

import (
	"context"

	"github.com/hapsnap/hapsnap/pusher/statestore"
)

// Keeper keeps the state of a pusher over restarts, for one pusher at a time. One
// goroutine calls it.
type Keeper interface {
	// Take makes this pusher the one that saves, and returns what was kept. Fallback
	// makes the fallback certificate, if none was.
	Take(ctx context.Context, fallback func() ([]byte, error)) (statestore.Taken, error)
	// Save keeps a state, or returns [statestore.ErrTaken] if another pusher has taken it.
	Save(ctx context.Context, state []byte) error
	// Raise makes the term higher than one that was met, on the same condition.
	Raise(ctx context.Context, above int64) (term int64, err error)
	// Release lets another pusher take the state, where one could not before.
	Release()
	String() string
}

// keeper returns what keeps the state.
func (o Options) keeper() Keeper {
	if o.Keeper != nil {
		return o.Keeper
	}
	return &stateFile{file: o.State}
}

// cache returns the directory that keeps the snapshots in use, "" for none.
func (o Options) cache() string {
	if o.Keeper == nil && o.Cache == "" {
		return KeptFolder(o.State)
	}
	return o.Cache
}
