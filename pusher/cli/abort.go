package cli

import (
	"github.com/spf13/cobra"

	"github.com/hapsnap/hapsnap/internal/process"
	"github.com/hapsnap/hapsnap/snapshots"
)

func abortCommand() *cobra.Command {
	var f orderFlags
	cmd := &cobra.Command{
		Use:   "abort [SNAPSHOT] --store STORE [--state FILE]",
		Short: "Stop the rollout that is under way, and undo it",
		Long: `Stop the rollout that is under way, as if it had failed: the instances that were
touched return to the last good snapshot, the last one first, while it is paused too,
and the pusher rejects the snapshot, until pusher retry.

pusher reject says something of a content, whether it is being rolled out or not: the
next older snapshot that may run comes in its place, and one that is pinned is held
where it is. pusher abort is about a rollout: the fleet goes back to what it ran, of a
pinned snapshot too. What has come to its end is not aborted: use pusher rollback.

It is the rollout that the state tells of, or else of the snapshot that is named,
or that should run. Where none is under way, or it begins later, it means nothing.`,
		Args: process.Args(cobra.MaximumNArgs(1)),
		RunE: func(cmd *cobra.Command, args []string) error {
			return f.give(cmd, args, "abort", "is undone and rejected, if it is under way",
				func(c snapshots.Channel, o snapshots.Order) snapshots.Channel { return c.Aborted(o) })
		},
	}
	f.add(cmd)
	return cmd
}
