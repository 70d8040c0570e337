package gitstore

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/go-git/go-git/v5/plumbing"
	"github.com/go-git/go-git/v5/plumbing/object"

	"github.com/hapsnap/hapsnap/snapshots"
	"github.com/hapsnap/hapsnap/snapshots/stores/sequence"
)

// Publish commits the draft as the newest snapshot. A draft with the content of
// the newest is not committed: its ID is returned, and false. A newest that has its tag
// and is corrupt is followed by the next revision.
//
// It looks at the repository afresh and tries again when another writer was
// faster and when a push fails, so that an answer which was lost is no failure.
// After an error, whether the snapshot is published is not known; publishing the
// same draft again finds out.
func (s *Store) Publish(ctx context.Context, d snapshots.Draft) (id snapshots.ID, published bool, err error) {
	if err := sequence.CheckAlone(d); err != nil {
		return snapshots.ID{}, false, err
	}
	if s.reviewed() {
		return snapshots.ID{}, false, fmt.Errorf("publish to %s: %w", s, errReviewed)
	}
	done, err := s.begin(ctx)
	if err != nil {
		return snapshots.ID{}, false, err
	}
	defer done()
	tried := map[snapshots.ID]plumbing.Hash{}
	err = repeat(ctx, func() error {
		id, published, err = s.publish(ctx, d, tried)
		if len(tried) > 0 {
			return again(err)
		}
		return err
	})
	if err != nil {
		return snapshots.ID{}, false, fmt.Errorf("publish snapshot: %w", err)
	}
	return id, published, nil
}

// publish makes one attempt. It adds the commit that it pushes to those that
// were tried before, any of which may turn out to have arrived.
func (s *Store) publish(ctx context.Context, d snapshots.Draft, tried map[snapshots.ID]plumbing.Hash) (snapshots.ID, bool, error) {
	r, err := s.list(ctx)
	if err != nil {
		return snapshots.ID{}, false, err
	}
	parent, err := s.verifiedTip(ctx, r)
	if err != nil {
		return snapshots.ID{}, false, err
	}
	if errors.Is(parent.bad, snapshots.ErrUntrusted) {
		return snapshots.ID{}, false, parent.bad
	}
	if parent.bad != nil {
		s.options.Log.Warn("the newest snapshot is corrupt, the next is put on top of it", "store", s.String(), "snapshot", parent.ID.String(), "err", parent.bad)
	}
	if id, ok := arrived(r, tried); ok {
		return id, true, s.addTag(ctx, r, parent)
	}
	next, changed, err := sequence.Next(parent.Head, d)
	if err != nil {
		return snapshots.ID{}, false, err
	}
	if !changed {
		return parent.ID, false, s.addTag(ctx, r, parent)
	}
	made, pack, err := s.commit(parent, next, d.Time)
	if err != nil {
		return snapshots.ID{}, false, err
	}
	tried[made.ID] = made.commit
	if err := s.push(ctx, s.updates(r, parent, made), pack); err != nil {
		return snapshots.ID{}, false, fmt.Errorf("push %s: %w", made.ID, err)
	}
	s.tip, s.seen = made, made.ID
	return made.ID, true, nil
}

// arrived returns the snapshot among those tried that the repository has: at the
// tip, or under its tag if others were put on top of it.
func arrived(r refs, tried map[snapshots.ID]plumbing.Hash) (snapshots.ID, bool) {
	for id, commit := range tried {
		if r.branch == commit || r.tags[id] == commit {
			return id, true
		}
	}
	return snapshots.ID{}, false
}

// commit makes the commit of a snapshot, and a pack of what it adds.
func (s *Store) commit(parent tip, next snapshots.Snapshot, made time.Time) (tip, []byte, error) {
	manifest, err := next.Manifest.Marshal()
	if err != nil {
		return tip{}, nil, fmt.Errorf("encode manifest: %w", err)
	}
	files, err := s.options.Deliver.Files(next, s.options.Key)
	if err != nil {
		return tip{}, nil, err
	}
	files = append(files, snapshots.File{Path: snapshots.ManifestFile, Content: manifest})
	files = append(files, next.Files...)
	b := newBuilder(parent.files)
	tree, all, err := b.files(files)
	if err != nil {
		return tip{}, nil, err
	}
	message := snapshotMessage(s.options.Name, next.Manifest)
	commit, err := b.commit(tree, parent.commit, s.author(made), message, s.sign)
	if err != nil {
		return tip{}, nil, err
	}
	pack, err := b.pack()
	return tip{Head: sequence.HeadOf(next), commit: commit, files: all}, pack, err
}

// author says who commits, and when. Git knows no time before 1970.
func (s *Store) author(t time.Time) object.Signature {
	if t.Unix() < 0 {
		t = time.Unix(0, 0)
	}
	return object.Signature{Name: s.options.Author.Name, Email: s.options.Author.Email, When: t.UTC()}
}

// updates moves the branch, then adds the tag, and before that the tag of the
// parent where the writer before us did not get to it.
func (s *Store) updates(r refs, parent, made tip) []update {
	updates := []update{{s.names.branch(), parent.commit, made.commit}}
	if u, ok := s.missingTag(r, parent); ok {
		updates = append(updates, u)
	}
	// A tag of that name may be left of a branch that was set back, or strange.
	return append(updates, update{name: s.names.tag(made.ID), old: r.all[made.ID], new: made.commit})
}

func (s *Store) missingTag(r refs, t tip) (update, bool) {
	_, there := r.all[t.ID]
	return update{name: s.names.tag(t.ID), new: t.commit}, !there && !t.ID.IsZero()
}

// addTag adds the tag of the tip if it is not there.
func (s *Store) addTag(ctx context.Context, r refs, t tip) error {
	u, ok := s.missingTag(r, t)
	if !ok {
		return nil
	}
	if err := s.push(ctx, []update{u}, emptyPack); err != nil {
		return fmt.Errorf("tag %s: %w", t.ID, err)
	}
	s.options.Log.Info("added a missing tag", "store", s.String(), "snapshot", t.ID.String())
	return nil
}

// push changes references. What failed is worth another look.
func (s *Store) push(ctx context.Context, updates []update, pack []byte) error {
	if err := s.at("before push"); err != nil {
		return err
	}
	if err := s.remote.Push(ctx, updates, pack); err != nil {
		return again(err)
	}
	return s.at("after push")
}
