package cli

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/hapsnap/hapsnap/internal/process"
	"github.com/hapsnap/hapsnap/pusher/report"
	"github.com/hapsnap/hapsnap/pusher/rollout"
	"github.com/hapsnap/hapsnap/snapshots"
	"github.com/hapsnap/hapsnap/snapshots/channel"
	"github.com/hapsnap/hapsnap/snapshots/stores"
)

// orderFlags are those of the verbs about the rollout that is under way.
type orderFlags struct {
	channelFlags
	state string
}

func (f *orderFlags) add(cmd *cobra.Command) {
	f.channelFlags.add(cmd)
	cmd.Flags().StringVar(&f.state, "state", "", "state of the pusher, as for run; it says what is being rolled out")
	f.waits.add(cmd)
	cmd.ValidArgsFunction = f.complete(allIDs)
}

// order is what a verb orders about the rollout that is under way.
type order struct {
	verb          channel.Verb
	subject, done string // such as "promote in full", "promoted in full"
	comes         string // of the rollout, such as "goes on to its next wave at once"
	write         func(channel.Channel, channel.Order) channel.Channel
}

// give writes an order into the channel, and prints what comes of it.
func (f *orderFlags) give(cmd *cobra.Command, args []string, o order) error {
	now := time.Now()
	status, err := f.status(cmd.Context())
	if err != nil {
		return err
	}
	return f.edit(cmd, func(view channel.View, c *channel.Channel) (act, error) {
		target, err := f.target(view, status, args, now)
		if err != nil {
			return act{}, err
		}
		if status != nil && status.Phase() == rollout.Undoing {
			return act{}, undone(*status, o.verb)
		}
		follows := fmt.Sprintf("the rollout of %s %s", target, o.comes)
		if status == nil {
			follows += ", if it is under way"
		} else if status.Rollout.Paused != "" && o.verb == channel.VerbPromote || c.Spec.Pause != nil && o.verb == channel.VerbPromote {
			follows += ", once it is no longer paused"
		}
		*c = o.write(*c, channel.Order{Snapshot: target, By: f.who.by, Reason: f.who.reason, At: now})
		return act{
			verb: o.verb, snapshot: target, subject: fmt.Sprintf("%s %s%s", o.subject, target, f.who.because()),
			done: fmt.Sprintf("%s %s%s", target, o.done, f.who.byWhom()), follows: follows,
		}, nil
	})
}

// undone says why an order means nothing: the rollout is being undone. If it failed, or was aborted, its snapshot is rejected too;
// it is not if something else is wanted by now.
func undone(s report.Status, verb channel.Verb) error {
	r := *s.Rollout
	rejected := slices.ContainsFunc(s.Rejected, func(f rollout.Failure) bool { return f.Snapshot == r.Target && f.Reason == r.Reason })
	hint := fmt.Sprintf("its snapshot is not rejected; pusher reject %s keeps it from running", r.Target)
	switch {
	case rejected && verb == channel.VerbAbort:
		return unchanged(fmt.Sprintf("%s is aborted already", r.Target))
	case verb != channel.VerbAbort:
		hint = "pusher wait --for rollout waits until it is"
	}
	return meansNothing(hint, "the rollout of %s is being undone: %s", r.Target, r.Reason)
}

// status returns what the pusher says of its fleet, nil if no state is named.
func (f *orderFlags) status(ctx context.Context) (*report.Status, error) {
	if f.state == "" {
		return nil, nil
	}
	status, err := f.readStatus(ctx, f.state)
	if err != nil {
		return nil, err
	}
	r := channel.Rolling{At: status.Updated}
	if status.Rollout != nil {
		r.Target = status.Rollout.Target
	}
	f.rolling = r
	return &status, nil
}

// target returns the snapshot of the rollout that is meant: the one that was named, that
// of the state, or what should run.
func (f *orderFlags) target(view channel.View, status *report.Status, args []string, now time.Time) (snapshots.ID, error) {
	var named snapshots.ID
	if len(args) > 0 {
		var err error
		if named, err = find(view.IDs, args[0]); err != nil {
			return named, err
		}
	}
	switch {
	case status != nil && status.Rollout == nil:
		return named, meansNothing("pusher status says what runs", "no rollout is under way")
	case status != nil && !named.IsZero() && named != status.Rollout.Target:
		return named, meansNothing("leave the name out", "no rollout of %s is under way, but of %s", named, status.Rollout.Target)
	case status != nil:
		return status.Rollout.Target, nil
	case !named.IsZero():
		return named, nil
	}
	want := channel.Want(view, now)
	if want.ID.IsZero() {
		return want.ID, process.WithHint(process.Usage("cannot tell which rollout you mean: %s", want.Message), "name its snapshot, or --state")
	}
	return want.ID, nil
}

func promoteCommand() *cobra.Command {
	var f orderFlags
	var full bool
	cmd := &cobra.Command{
		Use:   "promote [SNAPSHOT] [--full] --store STORE [--state FILE]",
		Short: "Start the next wave of the current rollout at once",
		Long: `Start the next wave of the current rollout at once, without the rest of its soak time. This
works in a blackout too, and when there were too few requests to judge by. With --full all
remaining waves start. The pusher still undoes a failure, keeps the budget of reloads, and
heeds a pause. The command counts once, for the current wave.

The rollout is the one that the state names, or else that of the snapshot that you name or
that should run. Rollouts that begin later ignore the command.`,
		Args: process.Args(cobra.MaximumNArgs(1)),
		RunE: func(cmd *cobra.Command, args []string) error {
			o := order{verb: channel.VerbPromote, subject: "promote", done: "promoted", comes: "goes on to its next wave at once"}
			if full {
				o.subject, o.done, o.comes = "promote in full", "promoted in full", "goes on to all that remain at once"
			}
			o.write = func(c channel.Channel, given channel.Order) channel.Channel {
				given.Full = full
				return c.Promoted(given)
			}
			return f.give(cmd, args, o)
		},
	}
	f.add(cmd)
	cmd.Flags().BoolVar(&full, "full", false, "start all remaining waves, without any soak time")
	return cmd
}

func abortCommand() *cobra.Command {
	var f orderFlags
	cmd := &cobra.Command{
		Use:   "abort [SNAPSHOT] --store STORE [--state FILE]",
		Short: "Stop the current rollout, and undo it",
		Long: `Stop the current rollout as if it had failed. The instances that it touched return to the
last good snapshot, the last one first, during a pause too. The pusher rejects the snapshot
until pusher retry.

pusher reject is about a snapshot, whether it is being rolled out or not: the next older
snapshot that may run takes its place, and a pinned snapshot keeps running. pusher abort is
about a rollout: the fleet goes back to what it ran before, also if the snapshot is pinned.
To go back after a rollout has ended, use pusher rollback.

The rollout is the one that the state names, or else that of the snapshot that you name or
that should run. Rollouts that begin later ignore the command.`,
		Args: process.Args(cobra.MaximumNArgs(1)),
		RunE: func(cmd *cobra.Command, args []string) error {
			return f.give(cmd, args, order{
				verb: channel.VerbAbort, subject: "abort", done: "aborted", comes: "is undone and rejected",
				write: func(c channel.Channel, o channel.Order) channel.Channel { return c.Aborted(o) },
			})
		},
	}
	f.add(cmd)
	return cmd
}

func confirmEndpointsCommand() *cobra.Command {
	var f channelFlags
	var state string
	cmd := &cobra.Command{
		Use:   "confirm-endpoints [LOSS] --store STORE [--state STATE]",
		Short: "Confirm that missing endpoints, which the pusher keeps, are gone",
		Long: `Confirm that missing endpoints are gone for good. The pusher keeps endpoints of which too
many disappeared from their source at once. Once you confirm the loss, their backends have
no servers and answer 503.

LOSS is the name that pusher status gives to the endpoints that it keeps. With --state the
command reads it from there. The name stands for exactly these endpoints: if more disappear
before the pusher reads the confirmation, nothing is confirmed.`,
		Args: process.Args(cobra.MaximumNArgs(1)),
		RunE: func(cmd *cobra.Command, args []string) error {
			loss, services, err := f.loss(cmd, args, state)
			if err != nil {
				return err
			}
			now := time.Now()
			return f.edit(cmd, func(_ channel.View, c *channel.Channel) (act, error) {
				if old := c.Spec.ConfirmEndpoints; old != nil && old.Loss == loss {
					return act{}, unchanged(fmt.Sprintf("loss %s is confirmed already%s", loss, channel.Said(old.By, old.Reason)))
				}
				*c = c.Confirmed(channel.Confirmation{Loss: loss, By: f.who.by, Reason: f.who.reason, At: now})
				return act{
					verb: channel.VerbConfirmEndpoints, subject: fmt.Sprintf("confirm that endpoints are gone, loss %s%s", loss, f.who.because()),
					done:    fmt.Sprintf("loss %s confirmed%s", loss, f.who.byWhom()),
					follows: fmt.Sprintf("the endpoints of loss %s%s are taken for gone, if they still are", loss, services),
				}, nil
			})
		},
	}
	f.add(cmd)
	cmd.Flags().StringVar(&state, "state", "", "state of the pusher, as for run; it says which endpoints are kept")
	return cmd
}

// loss returns the loss that is meant, and of what it is as far as that is known.
func (f *channelFlags) loss(cmd *cobra.Command, args []string, state string) (loss, services string, err error) {
	if len(args) > 0 {
		if loss = args[0]; strings.Trim(loss, "0123456789abcdef") != "" || loss == "" {
			return "", "", process.WithHint(process.Usage("%q is not the name of a loss", loss), "name it as pusher status does, such as 3f9a2c1d")
		}
	}
	if state == "" {
		if loss == "" {
			return "", "", process.WithHint(process.Usage("no loss is named"), "name the loss that pusher status shows, or use --state")
		}
		return loss, "", nil
	}
	status, err := f.readStatus(cmd.Context(), state)
	if err != nil {
		return "", "", err
	}
	switch kept := status.Kept; {
	case kept == nil:
		return "", "", meansNothing("pusher status says what is", "the pusher keeps no missing endpoints")
	case loss != "" && loss != kept.Loss:
		return "", "", meansNothing("look at pusher status again: other endpoints are kept now", "the loss is now %s, not %s", kept.Loss, loss)
	default:
		return kept.Loss, fmt.Sprintf(", of %s,", counted(kept.Count)), nil
	}
}

func counted(ports int) string {
	if ports == 1 {
		return "1 Service port"
	}
	return fmt.Sprintf("%d Service ports", ports)
}

func rejectCommand() *cobra.Command {
	var f rejectFlags
	cmd := &cobra.Command{
		Use:   "reject SNAPSHOT --store STORE",
		Short: "Keep the content of a snapshot from running",
		Long: `Keep the content of a snapshot from running, under this name or another, until
pusher retry. The pusher rolls out the next older snapshot that may run in its place. If
the rejected snapshot is pinned, the fleet stays as it is. The pusher itself rejects a
snapshot when its rollout fails. Such a rejection counts for its own fleet only, which then
stays with the last good snapshot. With --fleet your rejection counts for one fleet only, by
the name in its file.`,
		Args: process.Args(cobra.ExactArgs(1)),
		RunE: func(cmd *cobra.Command, args []string) error {
			return f.with(cmd.Context(), func(store stores.Store) error { return f.reject(cmd, store, args[0]) })
		},
	}
	cmd.ValidArgsFunction = f.complete(allIDs)
	f.add(cmd)
	return cmd
}

// rejectFlags are those of the verbs about what is rejected.
type rejectFlags struct {
	channelFlags
	fleet string
}

func (f *rejectFlags) add(cmd *cobra.Command) {
	f.channelFlags.add(cmd)
	cmd.Flags().StringVar(&f.fleet, "fleet", "", "name of the only fleet that the rejection counts for (default: all fleets on the store)")
}

func (f *rejectFlags) reject(cmd *cobra.Command, store stores.Store, name string) error {
	id, err := stored(cmd.Context(), store, name)
	if err != nil {
		return err
	}
	manifest, err := store.Manifest(cmd.Context(), id)
	if err != nil {
		return damaged(err)
	}
	r := channel.Rejection{
		Digest: manifest.Spec.Digest, Snapshot: id, At: time.Now(), Fleet: f.fleet,
		Reason: cmp.Or(f.who.reason, "by "+f.who.by),
	}
	return f.editOf(cmd, store, func(_ channel.View, c *channel.Channel) (act, error) {
		if old, ok := f.rejected(*c, id); ok && !old.Failed && (f.who.reason == "" || f.who.reason == old.Reason) {
			return act{}, unchanged(fmt.Sprintf("%s is rejected already: %s", id, old.Reason))
		}
		*c = c.Reject(r)
		return act{
			verb: channel.VerbReject, snapshot: id, subject: fmt.Sprintf("reject %s%s", id, f.who.because()),
			done: fmt.Sprintf("%s rejected%s%s", id, forFleet(f.fleet), f.who.byWhom()),
		}, nil
	})
}

// rejected returns the rejection of a snapshot for exactly the fleet that is meant.
func (f *rejectFlags) rejected(c channel.Channel, id snapshots.ID) (channel.Rejection, bool) {
	i := slices.IndexFunc(c.Spec.Rejected, func(r channel.Rejection) bool { return id.Names(r.Digest) && r.Fleet == f.fleet })
	if i < 0 {
		return channel.Rejection{}, false
	}
	return c.Spec.Rejected[i], true
}

func forFleet(name string) string {
	if name == "" {
		return ""
	}
	return " for fleet " + name
}

func approveCommand() *cobra.Command {
	var f channelFlags
	cmd := &cobra.Command{
		Use:   "approve SNAPSHOT --store STORE",
		Short: "Let a snapshot run, where the channel asks for approval",
		Long: `Let a snapshot run, where the channel asks for approval (requireApproval). The newest
snapshot that is approved and not rejected should run.`,
		Args: process.Args(cobra.ExactArgs(1)),
		RunE: func(cmd *cobra.Command, args []string) error {
			return f.edit(cmd, func(view channel.View, c *channel.Channel) (act, error) {
				id, err := find(view.IDs, args[0])
				switch {
				case err != nil:
					return act{}, err
				case slices.Contains(c.Spec.Approved, id):
					return act{}, unchanged(fmt.Sprintf("%s is approved already", id))
				case !c.Spec.RequireApproval:
					return act{}, meansNothing("requireApproval: true in the channel asks for it", "nothing asks for approval: every snapshot may run that is not rejected")
				}
				*c = c.Approve(id)
				return act{
					verb: channel.VerbApprove, snapshot: id, subject: fmt.Sprintf("approve %s%s", id, f.who.because()),
					done: fmt.Sprintf("%s approved%s", id, f.who.byWhom()),
				}, nil
			})
		},
	}
	cmd.ValidArgsFunction = f.complete(allIDs)
	f.add(cmd)
	f.waits.add(cmd)
	return cmd
}

func retryCommand() *cobra.Command {
	var f rejectFlags
	cmd := &cobra.Command{
		Use:   "retry [SNAPSHOT] --store STORE",
		Short: "Try a rejected snapshot again",
		Long: `Try a rejected snapshot again: its rollout failed, or its content failed under another name.
You need not name the snapshot if it is the only one that is rejected. With --fleet only
that fleet tries it again.`,
		Args: process.Args(cobra.MaximumNArgs(1)),
		RunE: func(cmd *cobra.Command, args []string) error {
			return f.edit(cmd, func(view channel.View, c *channel.Channel) (act, error) {
				r, err := rejection(view, *c, args, f.fleet)
				if err != nil {
					return act{}, err
				}
				*c, _ = c.RetryFor(r.Digest, f.fleet)
				return act{
					verb: channel.VerbRetry, snapshot: r.Snapshot, subject: fmt.Sprintf("retry %s%s", r.Snapshot, f.who.because()),
					done: fmt.Sprintf("rejection of %s%s taken back%s", r.Snapshot, forFleet(f.fleet), f.who.byWhom()),
				}, nil
			})
		},
	}
	cmd.ValidArgsFunction = f.complete(func(view channel.View) []snapshots.ID { return rejectedIDs(view.Channel.Spec.Rejected) })
	f.add(cmd)
	f.waits.add(cmd)
	return cmd
}

// rejection returns the one that a person means, of those of a fleet if that is named.
func rejection(view channel.View, c channel.Channel, args []string, fleet string) (channel.Rejection, error) {
	all := slices.DeleteFunc(slices.Clone(c.Spec.Rejected), func(r channel.Rejection) bool { return fleet != "" && r.Fleet != fleet })
	names := make([]string, 0, len(all))
	for _, r := range all {
		if name := r.Snapshot.String(); !slices.Contains(names, name) {
			names = append(names, name)
		}
	}
	if len(names) == 0 {
		return channel.Rejection{}, meansNothing("", "nothing is rejected%s", forFleet(fleet))
	}
	if len(args) == 0 && len(names) == 1 {
		return all[0], nil
	}
	if len(args) == 0 {
		return channel.Rejection{}, process.WithHint(process.Usage("%d snapshots are rejected, not one", len(names)),
			"name one: "+strings.Join(names, ", "))
	}
	id, err := find(append(view.IDs, rejectedIDs(all)...), args[0])
	if err != nil {
		return channel.Rejection{}, err
	}
	c.Spec.Rejected = all
	r, ok := c.Rejection(id)
	if !ok {
		return r, meansNothing("rejected are: "+strings.Join(names, ", "), "%s is not rejected", id)
	}
	return r, nil
}

func rejectedIDs(all []channel.Rejection) []snapshots.ID {
	var out []snapshots.ID
	for _, r := range all {
		out = append(out, r.Snapshot)
	}
	return out
}
