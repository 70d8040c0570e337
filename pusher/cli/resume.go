package cli

import (
	"github.com/spf13/cobra"

	"github.com/hapsnap/hapsnap/internal/process"
	"github.com/hapsnap/hapsnap/snapshots"
)

func resumeCommand() *cobra.Command {
	var f channelFlags
	cmd := &cobra.Command{
		Use:   "resume --store STORE",
		Short: "Go on after a pause",
		Args:  process.Args(cobra.NoArgs),
		RunE: func(cmd *cobra.Command, _ []string) error {
			return f.edit(cmd, func(_ snapshots.View, c *snapshots.Channel) (string, error) {
				if c.Spec.Pause == nil {
					return "", unchanged("nothing is paused")
				}
				*c = c.Resumed()
				return "resume" + f.who.because(), nil
			})
		},
	}
	f.add(cmd)
	return cmd
}
