package cli

import (
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/hapsnap/hapsnap/internal/process"
	"github.com/hapsnap/hapsnap/snapshots"
)

func overrideCommand() *cobra.Command {
	var f channelFlags
	var lasts time.Duration
	var end bool
	cmd := &cobra.Command{
		Use:   "override SNAPSHOT --for DURATION --store STORE",
		Short: "Have a snapshot run for a while, whatever else is said",
		Long: `Have a snapshot run until the time is over, whatever is pinned or published
meanwhile; only a pause comes before it. Then what would have run without it runs
again, through the usual waves. --end ends it at once.`,
		Args: process.Args(cobra.MaximumNArgs(1)),
		RunE: func(cmd *cobra.Command, args []string) error {
			switch {
			case end && (len(args) > 0 || lasts != 0):
				return process.Usage("--end stands alone")
			case end:
				return f.edit(cmd, f.endOverride)
			case len(args) == 0 || lasts <= 0:
				return process.WithHint(process.Usage("name a snapshot, and say with --for how long it is to run"), "pusher override r12 --for 2h; to end it: pusher override --end")
			}
			now := time.Now()
			return f.edit(cmd, func(view snapshots.View, c *snapshots.Channel) (string, error) {
				id, err := find(view.IDs, args[0])
				*c = c.Overridden(snapshots.Override{Snapshot: id, By: f.who.by, Reason: f.who.reason, Expires: now.Add(lasts)})
				return fmt.Sprintf("override with %s for %s%s", id, lasts, f.who.because()), err
			})
		},
	}
	cmd.ValidArgsFunction = f.complete(allIDs)
	f.add(cmd)
	cmd.Flags().DurationVar(&lasts, "for", 0, "how long it is to run, such as 2h")
	cmd.Flags().BoolVar(&end, "end", false, "end the override")
	return cmd
}

func (f *channelFlags) endOverride(_ snapshots.View, c *snapshots.Channel) (string, error) {
	if c.Spec.Override == nil {
		return "", unchanged("nothing is overridden")
	}
	id := c.Spec.Override.Snapshot
	*c = c.NotOverridden()
	return fmt.Sprintf("end the override with %s%s", id, f.who.because()), nil
}
