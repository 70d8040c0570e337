package cli

import (
	"github.com/spf13/cobra"

	"github.com/hapsnap/hapsnap/internal/process"
	"github.com/hapsnap/hapsnap/snapshots"
)

func promoteCommand() *cobra.Command {
	var f orderFlags
	var full bool
	cmd := &cobra.Command{
		Use:   "promote [SNAPSHOT] [--full] --store STORE [--state FILE]",
		Short: "Let the rollout that is under way go on at once",
		Long: `Let the rollout that is under way go on to its next wave without a soak, in a
blackout too, and with too few requests to judge by; with --full, to all that remain.
What is found to be wrong is still undone, the budget of reloads still holds, and a
pause is still a pause. It counts once, for the wave at hand.

It is the rollout that the state tells of, or else of the snapshot that is named,
or that should run. Where none is under way, or it begins later, it means nothing.`,
		Args: process.Args(cobra.MaximumNArgs(1)),
		RunE: func(cmd *cobra.Command, args []string) error {
			verb, comes := "promote", "goes on to its next wave at once, if it is under way"
			if full {
				verb, comes = "promote in full", "goes on to all that remain at once, if it is under way"
			}
			return f.give(cmd, args, verb, comes, func(c snapshots.Channel, o snapshots.Order) snapshots.Channel {
				o.Full = full
				return c.Promoted(o)
			})
		},
	}
	f.add(cmd)
	cmd.Flags().BoolVar(&full, "full", false, "to all that remain, without any soak")
	return cmd
}
