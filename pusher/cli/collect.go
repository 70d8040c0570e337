package cli

import (
	"fmt"
	"io"
	"maps"
	"slices"
	"text/tabwriter"
	"time"

	"github.com/hapsnap/hapsnap/snapshots"
)

// aged returns the snapshots of which only their age keeps them from being deleted.
func aged(view snapshots.View, used map[snapshots.ID]string, keep int, now time.Time) []snapshots.ID {
	_, drop := snapshots.Retain(undated(view.IDs), snapshots.RetentionPolicy{Keep: keep}, protected(view, used, now), now)
	return drop
}

// undated are snapshots that were published nobody knows when.
func undated(ids []snapshots.ID) []snapshots.Stored {
	out := make([]snapshots.Stored, 0, len(ids))
	for _, id := range ids {
		out = append(out, snapshots.Stored{ID: id})
	}
	return out
}

// protected are what no age makes superfluous: the channel's words come first.
func protected(view snapshots.View, used map[snapshots.ID]string, now time.Time) map[snapshots.ID]string {
	out := maps.Clone(used)
	maps.Copy(out, snapshots.Named(view, now))
	return out
}

// collect decides what is deleted.
func collect(view snapshots.View, used map[snapshots.ID]string, times map[snapshots.ID]time.Time, policy snapshots.RetentionPolicy, now time.Time) collection {
	list, keep := undated(view.IDs), protected(view, used, now)
	for i := range list {
		list[i].Time = times[list[i].ID]
	}
	for _, id := range aged(view, used, policy.Keep, now) {
		if times[id].IsZero() {
			keep[id] = "its age is not known"
		}
	}
	c := collection{Keep: []kept{}, Delete: []snapshots.ID{}}
	retained, drop := snapshots.Retain(list, policy, keep, now)
	for _, k := range retained {
		c.Keep = append(c.Keep, kept{k.ID, k.Reason})
	}
	c.Delete = append(c.Delete, drop...)
	return c
}

// collection is what is kept of a store, and what is not, both ascending.
type collection struct {
	DryRun bool           `json:"dryRun,omitempty"`
	Keep   []kept         `json:"keep"`
	Delete []snapshots.ID `json:"delete"`
}

type kept struct {
	Snapshot snapshots.ID `json:"snapshot"`
	Reason   string       `json:"reason"`
}

// print prints what is kept, the newest first as history does, then what is not.
func (c collection) print(w io.Writer) error {
	table := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	for _, k := range slices.Backward(c.Keep) {
		fmt.Fprintf(table, "keep\t%s\t%s\n", k.Snapshot, k.Reason)
	}
	for _, id := range slices.Backward(c.Delete) {
		fmt.Fprintf(table, "delete\t%s\n", id)
	}
	if err := table.Flush(); err != nil {
		return err
	}
	done := "were deleted"
	if c.DryRun {
		done = "would be deleted"
	}
	_, err := fmt.Fprintf(w, "%d of %d snapshots %s\n", len(c.Delete), len(c.Delete)+len(c.Keep), done)
	return err
}
