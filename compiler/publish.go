package compiler

import (
	"context"
	"errors"
	"io/fs"
	"slices"

	"github.com/hapsnap/hapsnap/compiler/config"
	"github.com/hapsnap/hapsnap/snapshots"
	"github.com/hapsnap/hapsnap/snapshots/channel"
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
	previous, newest, err := head(ctx, s, snapshots.Snapshot{})
	if err != nil {
		return snapshots.ID{}, false, err
	}
	if err := guard(previous, r.Draft, g); err != nil {
		return snapshots.ID{}, false, err
	}
	r.Draft.Subject, r.Draft.After = Subject(previous, r), &newest
	return s.Publish(ctx, r.Draft.WithSealed(previous))
}

// maxCorrupt is how many corrupt snapshots are passed over to find one that can be read.
const maxCorrupt = 20

// head returns the newest snapshot of a store that can be read, zero for none, and the
// name of the newest, which the next one follows; known is what the former was before. A
// directory that is not there is made when something is published: until then the newest
// is what is known.
//
// A newest snapshot that is corrupt must not keep a good one from being published, and
// must not disable the guard against mass losses either, which compares numbers with the
// snapshot before. The newest that can be read stands in for it: it is what instances run
// at best, since they take none that is corrupt. If there is none, the guard has nothing
// to compare with, as in an empty store.
func head(ctx context.Context, s store, known snapshots.Snapshot) (snapshots.Snapshot, snapshots.ID, error) {
	ids, err := s.IDs(ctx)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return known, known.ID(), nil
	case err != nil:
		return known, known.ID(), err
	}
	for n, id := range slices.Backward(ids) {
		if id == known.ID() {
			return known, newestOf(ids), nil
		}
		snapshot, err := s.Get(ctx, id)
		if !errors.Is(err, snapshots.ErrCorrupt) {
			return snapshot, newestOf(ids), err
		}
		if len(ids)-n == maxCorrupt {
			break
		}
	}
	return snapshots.Snapshot{}, newestOf(ids), nil
}

// newestOf returns the newest of snapshots, the zero ID of none.
func newestOf(ids []snapshots.ID) snapshots.ID { return channel.View{IDs: ids}.Head() }
