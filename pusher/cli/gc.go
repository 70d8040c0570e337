package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"github.com/hapsnap/hapsnap/internal/process"
	"github.com/hapsnap/hapsnap/snapshots"
	"github.com/hapsnap/hapsnap/snapshots/channel"
	"github.com/hapsnap/hapsnap/snapshots/stores"
)

// gcFlags are those of the verb gc.
type gcFlags struct {
	storeFlags
	output process.OutputFlag
	states []string
	policy channel.RetentionPolicy
	dryRun bool
}

func gcCommand() *cobra.Command {
	var f gcFlags
	cmd := &cobra.Command{
		Use:   "gc --store STORE --state STATE [--dry-run]",
		Short: "Delete old snapshots, and print why the others stay",
		Long: `Delete old snapshots, and print why the others stay. The command keeps the newest
snapshots (--keep), young ones (--min-age), and those that the channel names. It also keeps
what a pusher needs: its last good snapshot, the one that it rolls out, and those that
instances run. The states of pushers say what they need, so name the state of every pusher
that follows the store. A snapshot that cannot be read stays.`,
		Args: process.Args(cobra.NoArgs),
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := f.check(); err != nil {
				return err
			}
			return f.with(cmd.Context(), func(store stores.Store) error { return f.run(cmd, store) })
		},
	}
	f.storeFlags.add(cmd)
	f.output.AddTo(cmd)
	flags := cmd.Flags()
	flags.StringArrayVar(&f.states, "state", nil, "state of a pusher that follows the store, as for run (required, once for each)")
	flags.IntVar(&f.policy.Keep, "keep", 100, "how many of the newest to keep")
	process.DurationVar(flags, &f.policy.Younger, "min-age", 24*time.Hour, "age from which a snapshot may be deleted, such as 12h or 3d")
	flags.BoolVar(&f.dryRun, "dry-run", false, "print what would be deleted, and delete nothing")
	return cmd
}

func (f *gcFlags) check() error {
	switch {
	case len(f.states) == 0:
		return process.WithHint(process.Usage("no state is named"), "what instances run must not be deleted: use --state for every pusher that follows the store")
	case f.policy.Keep < 1:
		return process.Usage("--keep=%d: the newest is always kept", f.policy.Keep)
	}
	return nil
}

func (f *gcFlags) run(cmd *cobra.Command, store stores.Store) error {
	ctx, now := cmd.Context(), time.Now()
	view, err := store.View(ctx)
	if err != nil {
		return err
	}
	if len(view.IDs)+len(view.Refused) == 0 {
		return stores.NoSnapshots(ctx, store)
	}
	view = withOld(view)
	times, err := f.times(ctx, store, view, now)
	if err != nil {
		return err
	}
	// Reading the times may have taken long, so read what is in use last.
	if view, err = store.View(ctx); err != nil {
		return err
	}
	view = withOld(view)
	used, err := f.inUse(ctx, view)
	if err != nil {
		return err
	}
	c := collect(view, used, times, f.policy, now)
	if c.DryRun = f.dryRun; !f.dryRun && len(c.Delete) > 0 {
		process.Doing(ctx, "deleting %d snapshots", len(c.Delete))
		if err := store.Delete(ctx, c.Delete...); err != nil {
			return err
		}
	}
	return f.output.Write(cmd.OutOrStdout(), c, c.print)
}

// withOld adds the snapshots without an accepted signature that are older than the newest: they were
// published before signatures were required, or with a key that was retired.
func withOld(view channel.View) channel.View {
	old := slices.DeleteFunc(slices.Clone(view.Refused), func(r channel.Refused) bool { return r.ID.Revision >= view.Head().Revision })
	view.IDs = withRefused(view.IDs, old)
	return view
}

// times returns when snapshots were published, for those whose age decides. It leaves out snapshots that
// cannot be read.
func (f *gcFlags) times(ctx context.Context, store stores.Reader, view channel.View, now time.Time) (map[snapshots.ID]time.Time, error) {
	used, err := f.inUse(ctx, view)
	if err != nil {
		return nil, err
	}
	out := map[snapshots.ID]time.Time{}
	old := aged(view, used, f.policy.Keep, now)
	for n, id := range old {
		process.Doing(ctx, "reading the age of %s, %d of %d", id, n+1, len(old))
		m, err := store.Manifest(ctx, id)
		if ctx.Err() != nil {
			return nil, ctx.Err()
		}
		switch {
		case err == nil:
			out[id] = m.Provenance.Time
		case errors.Is(err, snapshots.ErrUntrusted):
			out[id] = time.Unix(0, 0) // whatever it says
		}
	}
	return out, nil
}

// inUse returns what the pushers use. It returns an error for a state whose snapshots are all of another store: those that its
// fleet does not use may be what the fleet on this store runs.
func (f *gcFlags) inUse(ctx context.Context, view channel.View) (map[snapshots.ID]string, error) {
	out := map[snapshots.ID]string{}
	stored := withRefused(view.IDs, view.Refused)
	for _, file := range f.states {
		used, err := f.readInUse(ctx, file)
		if err != nil {
			return nil, err
		}
		ids := slices.SortedFunc(maps.Keys(used), snapshots.ID.Compare)
		if len(ids) > 0 && !slices.ContainsFunc(ids, func(id snapshots.ID) bool { return slices.Contains(stored, id) }) {
			return nil, process.WithHint(process.Usage("the pusher with the state %s uses %s, and the store holds nothing that it uses", file, ids[0]),
				"does that pusher follow another store? Nothing is deleted: it is not known what the fleet on this one runs")
		}
		maps.Copy(out, used)
	}
	return out, nil
}

// aged returns the snapshots that would be deleted if they were old enough.
func aged(view channel.View, used map[snapshots.ID]string, keep int, now time.Time) []snapshots.ID {
	_, drop := channel.Retain(undated(view.IDs), channel.RetentionPolicy{Keep: keep}, protected(view, used, now), now)
	return drop
}

// undated are snapshots whose time of publishing is not known.
func undated(ids []snapshots.ID) []channel.Stored {
	out := make([]channel.Stored, 0, len(ids))
	for _, id := range ids {
		out = append(out, channel.Stored{ID: id})
	}
	return out
}

// protected are the reasons that protect a snapshot at any age. Those of the channel come first.
func protected(view channel.View, used map[snapshots.ID]string, now time.Time) map[snapshots.ID]string {
	out := maps.Clone(used)
	maps.Copy(out, channel.Named(view, now))
	return out
}

// collect decides what is deleted.
func collect(view channel.View, used map[snapshots.ID]string, times map[snapshots.ID]time.Time, policy channel.RetentionPolicy, now time.Time) collection {
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
	retained, drop := channel.Retain(list, policy, keep, now)
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
