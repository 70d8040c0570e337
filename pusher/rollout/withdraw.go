package rollout

import (
	"slices"

	"github.com/hapsnap/hapsnap/snapshots"
)

// Withdrawn reports whether people named the snapshot anew since it was tried, so that
// its failure no longer counts: what they said then was not tried yet. To name a
// snapshot withdraws its rejection from the channel, and so it does here, where the
// rejection is not in the channel yet.
func (f Failure) Withdrawn(wishes []Wish) bool {
	wishes = naming(wishes, f.Snapshot.Short)
	return len(wishes) > 0 && !slices.ContainsFunc(wishes, func(w Wish) bool { return w.Intent == f.Intent })
}

// naming returns the wishes for a content.
func naming(wishes []Wish, short string) []Wish {
	return slices.DeleteFunc(slices.Clone(wishes), func(w Wish) bool { return w.Snapshot.Short != short })
}

// undoes reports whether a rollout of the snapshot is being undone, whose failure
// people are to see meanwhile.
func (t *turn) undoes(id snapshots.ID) bool {
	return t.Rollout != nil && t.Rollout.Phase == Undoing && t.Rollout.Target == id
}
