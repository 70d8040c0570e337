package main

import (
	"fmt"

	"github.com/spf13/cobra"

	"github.com/hapsnap/hapsnap/internal/process"
	"github.com/hapsnap/hapsnap/snapshots"
)

func resumeCommand() *cobra.Command {
	var store storeFlags
	cmd := &cobra.Command{
		Use:   "resume --store STORE",
		Short: "Go on after a pause",
		Args:  process.Args(cobra.NoArgs),
		RunE: func(cmd *cobra.Command, _ []string) error {
			return store.edit(cmd, func(_ snapshots.View, c *snapshots.Channel) (string, error) {
				if c.Spec.Pause == nil {
					_, err := fmt.Fprintln(cmd.OutOrStdout(), "nothing is paused")
					return "", err
				}
				*c = c.Resumed()
				return "resume", nil
			})
		},
	}
	store.add(cmd)
	return cmd
}
