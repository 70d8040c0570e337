package main

import (
	"fmt"

	"github.com/spf13/cobra"

	"github.com/hapsnap/hapsnap/internal/process"
	"github.com/hapsnap/hapsnap/snapshots"
)

func unpinCommand() *cobra.Command {
	var store storeFlags
	cmd := &cobra.Command{
		Use:   "unpin --store STORE",
		Short: "Have the newest snapshot run again",
		Args:  process.Args(cobra.NoArgs),
		RunE: func(cmd *cobra.Command, _ []string) error {
			return store.edit(cmd, func(_ snapshots.View, c *snapshots.Channel) (string, error) {
				if c.Spec.Pin == nil {
					_, err := fmt.Fprintln(cmd.OutOrStdout(), "nothing is pinned")
					return "", err
				}
				pinned := c.Spec.Pin.Snapshot
				*c = c.Unpinned()
				return fmt.Sprintf("unpin %s", pinned), nil
			})
		},
	}
	store.add(cmd)
	return cmd
}
