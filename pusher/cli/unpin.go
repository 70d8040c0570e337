package cli

import (
	"fmt"

	"github.com/spf13/cobra"

	"github.com/hapsnap/hapsnap/internal/process"
	"github.com/hapsnap/hapsnap/snapshots"
)

func unpinCommand() *cobra.Command {
	var f channelFlags
	cmd := &cobra.Command{
		Use:   "unpin --store STORE",
		Short: "Have the newest snapshot run again",
		Args:  process.Args(cobra.NoArgs),
		RunE: func(cmd *cobra.Command, _ []string) error {
			return f.edit(cmd, func(_ snapshots.View, c *snapshots.Channel) (string, error) {
				if c.Spec.Pin == nil {
					return "", unchanged("nothing is pinned")
				}
				pinned := c.Spec.Pin.Snapshot
				*c = c.Unpinned()
				return fmt.Sprintf("unpin %s%s", pinned, f.who.because()), nil
			})
		},
	}
	f.add(cmd)
	return cmd
}
