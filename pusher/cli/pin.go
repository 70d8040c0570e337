package cli

import (
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/hapsnap/hapsnap/internal/process"
	"github.com/hapsnap/hapsnap/snapshots"
)

func pinCommand() *cobra.Command {
	var f channelFlags
	cmd := &cobra.Command{
		Use:   "pin SNAPSHOT --store STORE",
		Short: "Have a snapshot run until it is unpinned",
		Long: `Have a snapshot run until it is unpinned, whatever is published meanwhile. This
is how to roll back by hand. It is rolled out through the usual waves. A snapshot
is named in full, or by its revision, as r12, or as head, the newest.`,
		Args: process.Args(cobra.ExactArgs(1)),
		RunE: func(cmd *cobra.Command, args []string) error {
			now := time.Now()
			return f.edit(cmd, func(view snapshots.View, c *snapshots.Channel) (string, error) {
				id, err := find(view.IDs, args[0])
				*c = c.Pinned(snapshots.Pin{Snapshot: id, By: f.who.by, Reason: f.who.reason, At: now})
				return fmt.Sprintf("pin %s%s", id, f.who.because()), err
			})
		},
	}
	cmd.ValidArgsFunction = f.complete(allIDs)
	f.add(cmd)
	return cmd
}
