package cli

import (
	"context"
	"fmt"
	"io"
	"time"

	"github.com/spf13/cobra"

	"github.com/hapsnap/hapsnap/internal/process"
	"github.com/hapsnap/hapsnap/pusher/report"
	"github.com/hapsnap/hapsnap/snapshots"
	"github.com/hapsnap/hapsnap/snapshots/channel"
	"github.com/hapsnap/hapsnap/snapshots/stores"
)

func pinCommand() *cobra.Command {
	var f channelFlags
	cmd := &cobra.Command{
		Use:   "pin SNAPSHOT --store STORE",
		Short: "Run a snapshot until it is unpinned",
		Long: `Run a snapshot until it is unpinned, whatever is published meanwhile. The pusher rolls it
out in the usual waves. Name the snapshot in full, by its revision, such as r12, or as head
for the newest.`,
		Args: process.Args(cobra.ExactArgs(1)),
		RunE: func(cmd *cobra.Command, args []string) error {
			now := time.Now()
			return f.edit(cmd, func(view channel.View, c *channel.Channel) (act, error) {
				id, err := find(view.IDs, args[0])
				if err != nil {
					return act{}, err
				}
				return f.pin(c, act{verb: channel.VerbPin, snapshot: id, subject: "pin " + id.String() + f.who.because()}, f.who.reason, now)
			})
		},
	}
	cmd.ValidArgsFunction = f.complete(allIDs)
	f.add(cmd)
	f.waits.add(cmd)
	return cmd
}

// pin pins the snapshot of an act, unless it is pinned already. A reason that is new is kept.
func (f *channelFlags) pin(c *channel.Channel, does act, reason string, now time.Time) (act, error) {
	id := does.snapshot
	_, rejected := c.Rejection(id)
	if p := c.Spec.Pin; p != nil && p.Snapshot == id && !rejected && (f.who.reason == "" || f.who.reason == p.Reason) {
		return act{}, unchanged(fmt.Sprintf("%s is pinned already%s", id, channel.Said(p.By, p.Reason)))
	}
	*c = c.Pinned(channel.Pin{Snapshot: id, By: f.who.by, Reason: reason, At: now})
	does.done = fmt.Sprintf("%s pinned%s", id, channel.Said(f.who.by, reason))
	if rejected {
		does.done += "; it is no longer rejected"
	}
	return does, nil
}

func unpinCommand() *cobra.Command {
	var f channelFlags
	cmd := &cobra.Command{
		Use:   "unpin --store STORE",
		Short: "Take the pin away, so that the newest snapshot runs again",
		Args:  process.Args(cobra.NoArgs),
		RunE: func(cmd *cobra.Command, _ []string) error {
			return f.edit(cmd, func(_ channel.View, c *channel.Channel) (act, error) {
				if c.Spec.Pin == nil {
					return act{}, meansNothing("", "nothing is pinned")
				}
				pinned := c.Spec.Pin.Snapshot
				*c = c.Unpinned()
				return act{
					verb: channel.VerbUnpin, snapshot: pinned,
					subject: fmt.Sprintf("unpin %s%s", pinned, f.who.because()), done: fmt.Sprintf("%s unpinned%s", pinned, f.who.byWhom()),
				}, nil
			})
		},
	}
	f.add(cmd)
	f.waits.add(cmd)
	return cmd
}

// longestOverride is how long an override may last. A longer one is a pin that nobody sees.
const longestOverride = 30 * 24 * time.Hour

func overrideCommand() *cobra.Command {
	var f channelFlags
	var lasts time.Duration
	var end bool
	cmd := &cobra.Command{
		Use:   "override SNAPSHOT --for DURATION --store STORE",
		Short: "Run a snapshot for a limited time, in place of any pin",
		Long: `Run a snapshot for a limited time, whatever is pinned or published meanwhile. Only a pause
comes before an override. When the time is over, the pusher rolls out what should run
without the override, in the usual waves. --end ends the override at once.`,
		Args: process.Args(cobra.MaximumNArgs(1)),
		RunE: func(cmd *cobra.Command, args []string) error {
			switch {
			case end && (len(args) > 0 || lasts != 0):
				return process.Usage("--end stands alone")
			case end:
				return f.edit(cmd, f.endOverride)
			case len(args) == 0 || lasts <= 0:
				return process.WithHint(process.Usage("name a snapshot, and use --for to say how long it should run"), "pusher override r12 --for 2h; to end it: pusher override --end")
			case lasts > longestOverride:
				return process.WithHint(process.Usage("--for is at most %s: an override is for a limited time", process.Age(longestOverride)), "what is to run until somebody ends it is pinned: pusher pin "+args[0])
			}
			now := time.Now()
			return f.edit(cmd, func(view channel.View, c *channel.Channel) (act, error) {
				id, err := find(view.IDs, args[0])
				*c = c.Overridden(channel.Override{Snapshot: id, By: f.who.by, Reason: f.who.reason, Expires: now.Add(lasts)})
				return act{
					verb: channel.VerbOverride, snapshot: id, subject: fmt.Sprintf("override with %s for %s%s", id, lasts, f.who.because()),
					done: fmt.Sprintf("overridden with %s until %s%s", id, now.Add(lasts).UTC().Format(time.RFC3339), f.who.byWhom()),
				}, err
			})
		},
	}
	cmd.ValidArgsFunction = f.complete(allIDs)
	f.add(cmd)
	f.waits.add(cmd)
	process.DurationVar(cmd.Flags(), &lasts, "for", 0, "how long the snapshot should run, such as 2h or 3d, at most 30d")
	cmd.Flags().BoolVar(&end, "end", false, "end the override")
	return cmd
}

func (f *channelFlags) endOverride(_ channel.View, c *channel.Channel) (act, error) {
	o := c.Spec.Override
	if o == nil {
		return act{}, meansNothing("", "nothing is overridden")
	}
	if now := time.Now(); !now.Before(o.Expires) {
		return act{}, meansNothing("", "nothing is overridden: the override with %s ended %s ago by itself", o.Snapshot, process.Age(now.Sub(o.Expires)))
	}
	*c = c.NotOverridden()
	return act{
		verb: channel.VerbOverrideEnd, snapshot: o.Snapshot, subject: fmt.Sprintf("end the override with %s%s", o.Snapshot, f.who.because()),
		done: fmt.Sprintf("the override with %s ended%s", o.Snapshot, f.who.byWhom()),
	}, nil
}

func pauseCommand() *cobra.Command {
	var f channelFlags
	cmd := &cobra.Command{
		Use:   "pause --store STORE",
		Short: "Start no rollout and stop the current one where it is",
		Long: `Start no rollout, and stop the current one where it is. Endpoints and certificates still
follow the cluster, the pusher still undoes a failure, and an instance that joins still
gets what the fleet runs.`,
		Args: process.Args(cobra.NoArgs),
		RunE: func(cmd *cobra.Command, _ []string) error {
			now := time.Now()
			return f.edit(cmd, func(_ channel.View, c *channel.Channel) (act, error) {
				if p := c.Spec.Pause; p != nil && (f.who.reason == "" || f.who.reason == p.Reason) {
					return act{}, unchanged("paused already" + channel.Said(p.By, p.Reason))
				}
				*c = c.Paused(channel.Pause{By: f.who.by, Reason: f.who.reason, At: now})
				return act{
					verb: channel.VerbPause, subject: "pause" + f.who.because(), done: "paused" + f.who.byWhom(),
					follows: "what runs goes on running; endpoints and certificates still follow the cluster",
				}, nil
			})
		},
	}
	f.add(cmd)
	return cmd
}

func resumeCommand() *cobra.Command {
	var f channelFlags
	cmd := &cobra.Command{
		Use:   "resume --store STORE",
		Short: "Go on after a pause",
		Args:  process.Args(cobra.NoArgs),
		RunE: func(cmd *cobra.Command, _ []string) error {
			return f.edit(cmd, func(_ channel.View, c *channel.Channel) (act, error) {
				if c.Spec.Pause == nil {
					return act{}, meansNothing("", "nothing is paused")
				}
				*c = c.Resumed()
				return act{verb: channel.VerbResume, subject: "resume" + f.who.because(), done: "resumed" + f.who.byWhom()}, nil
			})
		},
	}
	f.add(cmd)
	return cmd
}

// rollbackFlags are those of the verb rollback.
type rollbackFlags struct {
	channelFlags
	to    string
	state string
}

// rolledBack is what a rollback did.
type rolledBack struct {
	channelChange
	From snapshots.ID `json:"from,omitzero"`
	To   snapshots.ID `json:"to"`
	Undo string       `json:"undo"` // the command that goes forward again
}

func rollbackCommand() *cobra.Command {
	var f rollbackFlags
	cmd := &cobra.Command{
		Use:   "rollback --store STORE [--to SNAPSHOT] [--state STATE]",
		Short: "Go back to the last good snapshot, by pinning it",
		Long: `Pin a snapshot that is older than the one that should run. --to names it. Without --to the
command takes the last good snapshot before it that has another content. With --state that
is the snapshot that the whole fleet ran last, if it is older. Otherwise it is the next
older snapshot that is not rejected and, if the channel requires approval, is approved.
Repeat the command to go back further. Newer snapshots wait until pusher unpin.`,
		Args: process.Args(cobra.NoArgs),
		RunE: func(cmd *cobra.Command, _ []string) error {
			return f.with(cmd.Context(), func(store stores.Store) error { return f.run(cmd, store) })
		},
	}
	f.add(cmd)
	cmd.Flags().StringVar(&f.to, "to", "", "snapshot to go back to")
	cmd.Flags().StringVar(&f.state, "state", "", "state of the pusher, as for run; it says what ran last")
	f.waits.add(cmd)
	_ = cmd.RegisterFlagCompletionFunc("to", f.complete(allIDs)) // fails for unknown flags only
	return cmd
}

func (f *rollbackFlags) run(cmd *cobra.Command, store stores.Store) error {
	status, err := f.status(cmd.Context())
	if err != nil {
		return err
	}
	now := time.Now()
	var done rolledBack
	return f.act(cmd, store, func(view channel.View, c *channel.Channel) (act, error) {
		var err error
		if done.From, done.To, err = f.target(view, status, now); err != nil {
			return act{}, err
		}
		return f.pin(c, act{verb: channel.VerbRollback, snapshot: done.To, subject: fmt.Sprintf("roll back to %s%s", done.To, f.who.because())}, f.why(done.From), now)
	}, func(made channelChange) error {
		made.Reason = f.why(done.From)
		done.channelChange, done.Undo = made, nextCommand(cmd, "unpin", store.String())
		return f.output.Write(cmd.OutOrStdout(), done, done.write)
	})
}

// status returns what a pusher says of its fleet, if a state was named.
func (f *rollbackFlags) status(ctx context.Context) (report.Status, error) {
	if f.state == "" {
		return report.Status{}, nil
	}
	return f.readStatus(ctx, f.state)
}

// target returns what should run, zero if that is not known, and what to go back to.
func (f *rollbackFlags) target(view channel.View, status report.Status, now time.Time) (from, to snapshots.ID, err error) {
	view.Fleet = status.Fleet
	from, last := channel.Previous(view, append(status.Proven, status.Good), now)
	if f.to == "" && last.Hold {
		return from, to, meansNothing("name a snapshot with --to; pusher history lists them", "there is nothing to roll back to: %s", last.Message)
	}
	if f.to == "" {
		return from, last.ID, nil
	}
	if to, err = find(view.IDs, f.to); err != nil {
		return from, to, err
	}
	if !from.IsZero() && to.Compare(from) >= 0 {
		return from, to, process.WithHint(process.Usage("%s is not older than %s, which should run", to, from), "use pusher pin")
	}
	return from, to, nil
}

// why returns the reason that is kept with the pin.
func (f *rollbackFlags) why(from snapshots.ID) string {
	if f.who.reason == "" && !from.IsZero() {
		return "rolled back from " + from.String()
	}
	return f.who.reason
}

func (r rolledBack) write(w io.Writer) error {
	if err := r.channelChange.write(w); err != nil || r.DryRun {
		return err
	}
	_, err := fmt.Fprintf(w, "\tto go forward again: %s\n", r.Undo)
	return err
}
