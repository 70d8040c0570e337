package cli

import (
	"cmp"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/hapsnap/hapsnap/internal/process"
	"github.com/hapsnap/hapsnap/snapshots"
	"github.com/hapsnap/hapsnap/snapshots/stores"
)

func rejectCommand() *cobra.Command {
	var f rejectFlags
	cmd := &cobra.Command{
		Use:   "reject SNAPSHOT --store STORE",
		Short: "Keep the content of a snapshot from running, under any name",
		Long: `Keep the content of a snapshot from running, under this name or another, until
pusher retry. The next older snapshot that may run is rolled out in its place; but
one that is pinned is not passed over: what runs is held. The pusher itself rejects a
snapshot when its rollout fails, for its own fleet only, and that fleet then stays with
what was good. With --fleet this counts for one fleet too, by the name in its file.`,
		Args: process.Args(cobra.ExactArgs(1)),
		RunE: func(cmd *cobra.Command, args []string) error {
			return f.with(cmd.Context(), func(store stores.Store) error { return f.reject(cmd, store, args[0]) })
		},
	}
	cmd.ValidArgsFunction = f.complete(allIDs)
	f.add(cmd)
	return cmd
}

// rejectFlags are those of the verbs about what is rejected.
type rejectFlags struct {
	channelFlags
	fleet string
}

func (f *rejectFlags) add(cmd *cobra.Command) {
	f.channelFlags.add(cmd)
	cmd.Flags().StringVar(&f.fleet, "fleet", "", "name of the only fleet that it is for (default: all on the store)")
}

func (f *rejectFlags) reject(cmd *cobra.Command, store stores.Store, name string) error {
	id, err := stored(cmd.Context(), store, name)
	if err != nil {
		return err
	}
	manifest, err := store.Manifest(cmd.Context(), id)
	if err != nil {
		return damaged(err)
	}
	r := snapshots.Rejection{
		Digest: manifest.Spec.Digest, Snapshot: id, At: time.Now(), Fleet: f.fleet,
		Reason: cmp.Or(f.who.reason, "by "+f.who.by),
	}
	return f.editOf(cmd, store, func(_ snapshots.View, c *snapshots.Channel) (string, error) {
		*c = c.Reject(r)
		return fmt.Sprintf("reject %s%s", id, f.who.because()), nil
	})
}
