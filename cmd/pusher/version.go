package main

import (
	"fmt"

	"github.com/spf13/cobra"

	"github.com/hapsnap/hapsnap/internal/process"
)

func versionCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "version",
		Short: "Print the version",
		Args:  process.Args(cobra.NoArgs),
		RunE: func(cmd *cobra.Command, _ []string) error {
			_, err := fmt.Fprintln(cmd.OutOrStdout(), "pusher", process.Version())
			return err
		},
	}
}
