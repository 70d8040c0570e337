// Package sequence decides what a store writes next: it is the part of publishing that all kinds of stores have
// in common, as a pure function.
//
// It promises that revisions are consecutive, and that the same content twice in a row is one snapshot. It
// refuses, before anything is written, a draft that could not be read back or that would configure nothing. The
// stores themselves lock, read the head and write.
package sequence

import (
	"bytes"
	"errors"
	"fmt"

	"github.com/hapsnap/hapsnap/snapshots"
	"github.com/hapsnap/hapsnap/snapshots/channel"
)

// ErrRefused is returned for a draft that no store takes.
var ErrRefused = errors.New("draft refused")

// Head is the newest snapshot of a store. The zero value is the head of an
// empty one.
type Head struct {
	ID     snapshots.ID
	Digest snapshots.Digest
}

// HeadOf returns the snapshot as a head.
func HeadOf(s snapshots.Snapshot) Head {
	return Head{ID: s.ID(), Digest: s.Manifest.Spec.Digest}
}

// Next returns the snapshot that follows head, and whether there is one. There is none if the draft has the
// digest of the head. It refuses a draft that must follow another head. The error wraps [ErrRefused] or
// [snapshots.ErrMoved].
func Next(head Head, d snapshots.Draft) (snapshots.Snapshot, bool, error) {
	if err := Check(d); err != nil {
		return snapshots.Snapshot{}, false, err
	}
	if !head.ID.IsZero() && head.Digest == d.Digest() {
		return snapshots.Snapshot{}, false, nil
	}
	if d.After != nil && *d.After != head.ID {
		return snapshots.Snapshot{}, false, fmt.Errorf("%w: it is %s, not %s", snapshots.ErrMoved, named(head.ID), named(*d.After))
	}
	if head.ID.Revision >= snapshots.MaxRevision {
		return snapshots.Snapshot{}, false, fmt.Errorf("%w: no revision comes after %s", ErrRefused, head.ID)
	}
	return d.Number(head.ID.Revision+1, head.ID), true, nil
}

func named(id snapshots.ID) string {
	if id.IsZero() {
		return "none"
	}
	return id.String()
}

// CheckAlone is Check for a store that cannot keep anything beside a snapshot.
func CheckAlone(d snapshots.Draft) error {
	if err := Check(d); err != nil {
		return err
	}
	if len(d.Companions) > 0 {
		return fmt.Errorf("%w: %w", ErrRefused, snapshots.ErrNoCompanions)
	}
	return nil
}

// Check refuses a draft without a configuration, with a path twice, or with a path that no instance could keep.
// The latter includes paths that would leave the snapshot's folder or hide in it.
func Check(d snapshots.Draft) error {
	if err := d.Check(); err != nil {
		return fmt.Errorf("%w: %w", ErrRefused, err)
	}
	sizes := map[string]int{}
	var listed []snapshots.FileDigest
	for _, f := range d.Files {
		if _, twice := sizes[f.Path]; twice {
			return fmt.Errorf("%w: %s is there twice", ErrRefused, f.Path)
		}
		sizes[f.Path] = len(f.Content)
		listed = append(listed, snapshots.FileDigest{Path: f.Path, Size: int64(len(f.Content))})
	}
	if err := snapshots.CheckSizes(listed); err != nil {
		return fmt.Errorf("%w: %w; the largest files: %s", ErrRefused, err, snapshots.Largest(d.Files))
	}
	if sizes[snapshots.ConfigFile] == 0 {
		return fmt.Errorf("%w: %s is missing or empty", ErrRefused, snapshots.ConfigFile)
	}
	return nil
}

// Edit returns the encoded channel after edit, and whether it differs from the one before. It returns the error
// of edit unchanged.
func Edit(channel channel.Channel, edit func(*channel.Channel) error) ([]byte, bool, error) {
	data, _, changed, err := EditBy(channel, edit)
	return data, changed, err
}

// EditBy is Edit, and also returns what the edit says that it did.
func EditBy(c channel.Channel, edit func(*channel.Channel) error) (data []byte, act channel.Act, changed bool, err error) {
	before, err := c.Marshal()
	if err != nil {
		return nil, act, false, fmt.Errorf("encode channel: %w", err)
	}
	c.Act = channel.Act{}
	if err := edit(&c); err != nil {
		return nil, act, false, err
	}
	after, err := c.Marshal()
	if err != nil {
		return nil, act, false, fmt.Errorf("encode channel: %w", err)
	}
	return after, c.Act, !bytes.Equal(before, after), nil
}
