package gitstore

import (
	"context"
	"fmt"
	"slices"

	"github.com/go-git/go-git/v5/plumbing"

	"github.com/hapsnap/hapsnap/snapshots"
	"github.com/hapsnap/hapsnap/snapshots/channel"
)

// View returns the IDs of all snapshots and the channel. It costs one listing
// of the repository's references, and a fetch when the channel has changed. A
// repository without our branches is an empty store; one that cannot be read is
// an error, and so is a branch that is not as we left it: [ErrForeign],
// [ErrRewound].
func (s *Store) View(ctx context.Context) (view channel.View, err error) {
	err = s.look(ctx, func(r refs, ids []snapshots.ID) error {
		current, _, err := s.readChannel(ctx, r)
		view = channel.View{IDs: ids, HeadOnly: s.reviewed(), Channel: current, Seen: s.remembered()}
		return err
	})
	if err != nil {
		return channel.View{}, err
	}
	return view, nil
}

// IDs returns the IDs of all snapshots, the newest last. The channel is not read;
// else it is as View.
func (s *Store) IDs(ctx context.Context) (ids []snapshots.ID, err error) {
	err = s.look(ctx, func(_ refs, found []snapshots.ID) error {
		ids = found
		return nil
	})
	return ids, err
}

// look lists the repository's references, and hands them on with the snapshots.
func (s *Store) look(ctx context.Context, take func(refs, []snapshots.ID) error) error {
	done, err := s.begin(ctx)
	if err != nil {
		return err
	}
	defer done()
	return repeat(ctx, func() error {
		r, err := s.list(ctx)
		if err != nil {
			return err
		}
		head, err := s.head(ctx, r)
		if err != nil {
			return err
		}
		ids := r.ids(head)
		if s.reviewed() {
			ids = upTo(ids, head)
		}
		return take(r, ids)
	})
}

// Get returns a snapshot whose every digest has been verified. The error wraps
// [snapshots.ErrNotFound] or [snapshots.ErrCorrupt] where one of them is why.
// What was fetched before is returned also while the repository is out of reach.
func (s *Store) Get(ctx context.Context, id snapshots.ID) (snapshot snapshots.Snapshot, err error) {
	err = s.find(ctx, id, func(commit plumbing.Hash) error {
		snapshot, _, err = s.load(ctx, commit)
		if err == nil && snapshot.ID() != id {
			err = fmt.Errorf("%w: it holds %s", snapshots.ErrCorrupt, snapshot.ID())
		}
		return err
	})
	if err != nil {
		return snapshots.Snapshot{}, fmt.Errorf("read snapshot %s: %w", id, err)
	}
	return snapshot, nil
}

// Manifest returns the manifest of a snapshot. The files are fetched with it,
// but not read.
func (s *Store) Manifest(ctx context.Context, id snapshots.ID) (manifest snapshots.Manifest, err error) {
	err = s.find(ctx, id, func(commit plumbing.Hash) error {
		r, err := s.open(ctx, commit)
		if err != nil {
			return err
		}
		if manifest, err = r.manifest(); err != nil {
			return s.blameCache(err)
		}
		if named := snapshots.NewID(manifest.Spec.Revision, manifest.Spec.Digest); named != id {
			return fmt.Errorf("%w: it holds %s", snapshots.ErrCorrupt, named)
		}
		return nil
	})
	if err != nil {
		return snapshots.Manifest{}, fmt.Errorf("read manifest of %s: %w", id, err)
	}
	return manifest, nil
}

// find calls read with the commit of a snapshot: first with the one that was
// listed last, if any, since it is verified in any case.
func (s *Store) find(ctx context.Context, id snapshots.ID, read func(plumbing.Hash) error) error {
	done, err := s.begin(ctx)
	if err != nil {
		return err
	}
	defer done()
	commit, listed := s.last.tags[id]
	return repeat(ctx, func() error {
		if !listed {
			r, err := s.list(ctx)
			if err != nil {
				return err
			}
			if commit, err = s.commitOf(ctx, r, id); err != nil {
				return err
			}
		}
		listed = false
		return read(commit)
	})
}

// commitOf returns the commit of a snapshot: that of its tag, or the tip of the
// branch if it is the snapshot and has no tag. A tip that is no snapshot at all
// is not what was asked for.
func (s *Store) commitOf(ctx context.Context, r refs, id snapshots.ID) (plumbing.Hash, error) {
	if commit, ok := r.tags[id]; ok {
		return commit, nil
	}
	if s.reviewed() {
		return s.untagged(ctx, r, id)
	}
	t, err := s.readTip(ctx, r)
	if err != nil && !isCorrupt(err) {
		return plumbing.ZeroHash, err
	}
	if err != nil || t.ID != id || id.IsZero() {
		return plumbing.ZeroHash, snapshots.ErrNotFound
	}
	return t.commit, nil
}

// Delete removes the tags of snapshots; their commits stay in the history of the
// branch. Those that are not there are passed over; the newest is refused, and
// then nothing is removed.
func (s *Store) Delete(ctx context.Context, ids ...snapshots.ID) error {
	done, err := s.begin(ctx)
	if err != nil {
		return err
	}
	defer done()
	pushed := false
	return repeat(ctx, func() error {
		updates, err := s.deletions(ctx, ids)
		if err != nil && pushed {
			return again(err)
		}
		if err != nil || len(updates) == 0 {
			return err
		}
		pushed = true
		if err := s.push(ctx, updates, nil); err != nil {
			return fmt.Errorf("delete snapshots: %w", err)
		}
		return nil
	})
}

// deletions returns the updates that remove what is there of the snapshots.
func (s *Store) deletions(ctx context.Context, ids []snapshots.ID) ([]update, error) {
	r, err := s.list(ctx)
	if err != nil {
		return nil, err
	}
	head, err := s.head(ctx, r)
	if err != nil {
		return nil, err
	}
	if !head.IsZero() && slices.Contains(ids, head) {
		return nil, fmt.Errorf("delete snapshot %s: it is the newest", head)
	}
	var updates []update
	for _, id := range slices.Compact(slices.SortedFunc(slices.Values(ids), snapshots.ID.Compare)) {
		if commit, ok := r.tags[id]; ok && id.Revision <= head.Revision {
			updates = append(updates, update{name: s.shelf.tag(id), old: commit})
		}
	}
	return updates, nil
}
