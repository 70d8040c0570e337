package cli

import (
	"context"
	"fmt"
	"io"
	"time"

	"github.com/spf13/cobra"

	"github.com/hapsnap/hapsnap/internal/process"
	"github.com/hapsnap/hapsnap/snapshots"
	"github.com/hapsnap/hapsnap/snapshots/stores"
)

// orderFlags are those of the verbs about the rollout that is under way.
type orderFlags struct {
	channelFlags
	state string
}

func (f *orderFlags) add(cmd *cobra.Command) {
	f.channelFlags.add(cmd)
	cmd.Flags().StringVar(&f.state, "state", "", "state of the pusher, as for run, to tell what is being rolled out")
	cmd.ValidArgsFunction = f.complete(allIDs)
}

// give writes an order into the channel, and prints what comes of it.
func (f *orderFlags) give(cmd *cobra.Command, args []string, verb, comes string, write func(snapshots.Channel, snapshots.Order) snapshots.Channel) error {
	now := time.Now()
	return f.with(cmd.Context(), func(store stores.Store) error {
		var target snapshots.ID
		done, err := f.change(cmd.Context(), store, now, func(view snapshots.View, c *snapshots.Channel) (string, error) {
			var err error
			if target, err = f.target(cmd.Context(), view, args, now); err != nil {
				return "", err
			}
			*c = write(*c, snapshots.Order{Snapshot: target, By: f.who.by, Reason: f.who.reason, At: now})
			return fmt.Sprintf("%s %s%s", verb, target, f.who.because()), nil
		})
		if err != nil {
			return err
		}
		done.Message = fmt.Sprintf("the rollout of %s %s", target, comes)
		done.warn(cmd.ErrOrStderr())
		return f.output.Write(cmd.OutOrStdout(), done, func(w io.Writer) error {
			_, err := fmt.Fprintln(w, done.Message)
			return err
		})
	})
}

// target returns the snapshot of the rollout that is meant: the one that was named, that
// of the state, or what should run.
func (f *orderFlags) target(ctx context.Context, view snapshots.View, args []string, now time.Time) (snapshots.ID, error) {
	var named, rolling snapshots.ID
	if len(args) > 0 {
		var err error
		if named, err = find(view.IDs, args[0]); err != nil {
			return named, err
		}
	}
	if f.state != "" {
		status, err := f.readStatus(ctx, f.state)
		if err != nil {
			return rolling, err
		}
		if status.Rollout != nil {
			rolling = status.Rollout.Target
		}
		switch {
		case rolling.IsZero():
			return rolling, process.WithHint(process.Usage("no rollout is under way"), "pusher status says what is")
		case !named.IsZero() && named != rolling:
			return rolling, process.WithHint(process.Usage("no rollout of %s is under way, but of %s", named, rolling), "leave the name out")
		}
		return rolling, nil
	}
	if !named.IsZero() {
		return named, nil
	}
	want := snapshots.Want(view, now)
	if want.ID.IsZero() {
		return want.ID, process.WithHint(process.Usage("it cannot be told which rollout is meant: %s", want.Message), "name its snapshot, or --state")
	}
	return want.ID, nil
}
