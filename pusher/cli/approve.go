package cli

import (
	"fmt"

	"github.com/spf13/cobra"

	"github.com/hapsnap/hapsnap/internal/process"
	"github.com/hapsnap/hapsnap/snapshots"
)

func approveCommand() *cobra.Command {
	var f channelFlags
	cmd := &cobra.Command{
		Use:   "approve SNAPSHOT --store STORE",
		Short: "Let a snapshot run, where that has to be approved",
		Long: `Let a snapshot run, where that has to be approved: where the channel says
requireApproval. The newest snapshot that is approved, and not rejected, is what
should run.`,
		Args: process.Args(cobra.ExactArgs(1)),
		RunE: func(cmd *cobra.Command, args []string) error {
			return f.edit(cmd, func(view snapshots.View, c *snapshots.Channel) (string, error) {
				id, err := find(view.IDs, args[0])
				*c = c.Approve(id)
				return fmt.Sprintf("approve %s%s", id, f.who.because()), err
			})
		},
	}
	cmd.ValidArgsFunction = f.complete(allIDs)
	f.add(cmd)
	return cmd
}
