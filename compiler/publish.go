package compiler

import (
	"context"
	"errors"
	"io/fs"

	"github.com/hapsnap/hapsnap/compiler/config"
	"github.com/hapsnap/hapsnap/snapshots"
)

// store is what the compiler needs of a snapshot store. It cannot delete, and
// cannot touch the channel.
type store interface {
	// Publish numbers a draft and keeps it. A draft with the digest of the
	// head is not written: then published is false.
	Publish(ctx context.Context, d snapshots.Draft) (id snapshots.ID, published bool, err error)
	// IDs returns those of all snapshots, the newest last. What people say in the
	// channel, and whether it can be read, does not concern the compiler.
	IDs(ctx context.Context) ([]snapshots.ID, error)
	Get(ctx context.Context, id snapshots.ID) (snapshots.Snapshot, error)
}

// Publish brings a result to a store once, with a subject that says what it
// changes. The error is a [*ShrinkError] for one that the guard holds.
func Publish(ctx context.Context, s store, r Result, g config.ShrinkGuard) (id snapshots.ID, published bool, err error) {
	previous, err := head(ctx, s, snapshots.Snapshot{})
	if err != nil {
		return snapshots.ID{}, false, err
	}
	if err := guard(previous, r.Draft, g); err != nil {
		return snapshots.ID{}, false, err
	}
	r.Draft.Subject, r.Draft.After = Subject(previous, r), new(previous.ID())
	return s.Publish(ctx, r.Draft.WithSealed(previous))
}

// head returns the newest snapshot of a store, zero for an empty one; known is
// what it was before. A directory that is not there is made when something is
// published: until then the newest is what is known.
func head(ctx context.Context, s store, known snapshots.Snapshot) (snapshots.Snapshot, error) {
	ids, err := s.IDs(ctx)
	newest := newestOf(ids)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return known, nil
	case err != nil:
		return known, err
	case len(ids) == 0:
		return snapshots.Snapshot{}, nil
	case newest == known.ID():
		return known, nil
	}
	return s.Get(ctx, newest)
}

// newestOf returns the newest of snapshots, the zero ID of none.
func newestOf(ids []snapshots.ID) snapshots.ID { return snapshots.View{IDs: ids}.Head() }
