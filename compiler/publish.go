package compiler

import (
	"context"

	"github.com/hapsnap/hapsnap/snapshots"
)

// store is what the compiler needs of a snapshot store. It cannot delete, and
// cannot touch the channel.
type store interface {
	// Publish numbers a draft and keeps it. A draft with the digest of the
	// head is not written: then published is false.
	Publish(ctx context.Context, d snapshots.Draft) (id snapshots.ID, published bool, err error)
	View(ctx context.Context) (snapshots.View, error)
	Get(ctx context.Context, id snapshots.ID) (snapshots.Snapshot, error)
}

// Publish brings a result to a store once, with a subject that says what it
// changes.
func Publish(ctx context.Context, s store, r Result) (id snapshots.ID, published bool, err error) {
	r.Draft.Subject = Subject(head(ctx, s, snapshots.Snapshot{}), r)
	return s.Publish(ctx, r.Draft)
}

// head returns the newest snapshot of a store. It is only for the subject of
// the one that is published next: where it cannot be read, what was known
// before is returned, and the error is left for Publish to meet and to report.
func head(ctx context.Context, s store, known snapshots.Snapshot) snapshots.Snapshot {
	view, err := s.View(ctx)
	if err != nil || len(view.IDs) == 0 || view.Head() == known.ID() {
		return known
	}
	if found, err := s.Get(ctx, view.Head()); err == nil {
		return found
	}
	return known
}
