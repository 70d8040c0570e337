package cli

import (
	"time"

	"github.com/spf13/cobra"

	"github.com/hapsnap/hapsnap/internal/process"
	"github.com/hapsnap/hapsnap/snapshots"
)

func pauseCommand() *cobra.Command {
	var f channelFlags
	cmd := &cobra.Command{
		Use:   "pause --store STORE",
		Short: "Hold the fleet where it is",
		Long: `Hold the fleet where it is, also in the middle of a rollout. Endpoints and
certificates still follow the cluster, a failure is still undone, and an instance
that joins still gets what the fleet runs.`,
		Args: process.Args(cobra.NoArgs),
		RunE: func(cmd *cobra.Command, _ []string) error {
			now := time.Now()
			return f.edit(cmd, func(_ snapshots.View, c *snapshots.Channel) (string, error) {
				*c = c.Paused(snapshots.Pause{By: f.who.by, Reason: f.who.reason, At: now})
				return "pause" + f.who.because(), nil
			})
		},
	}
	f.add(cmd)
	return cmd
}
