package cli

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/hapsnap/hapsnap/internal/process"
	"github.com/hapsnap/hapsnap/snapshots"
	"github.com/hapsnap/hapsnap/snapshots/channel"
	"github.com/hapsnap/hapsnap/snapshots/stores"
)

func rejectCommand() *cobra.Command {
	var f rejectFlags
	cmd := &cobra.Command{
		Use:   "reject SNAPSHOT --store STORE",
		Short: "Keep the content of a snapshot from running, under any name",
		Long: `Keep the content of a snapshot from running, under this name or another, until
pusher retry. The pusher rolls out the next older snapshot that may run in its place. If
the rejected one is pinned, what runs stays. The pusher itself rejects a snapshot when its
rollout fails, for its own fleet only, and that fleet then stays with what was good. With
--fleet the rejection counts for one fleet, by the name in its file.`,
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
	cmd.Flags().StringVar(&f.fleet, "fleet", "", "name of the only fleet that it is for (default: all on the store)")
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
	return f.editOf(cmd, store, func(_ channel.View, c *channel.Channel) (string, error) {
		*c = c.Reject(r)
		return fmt.Sprintf("reject %s%s", id, f.who.because()), nil
	}, nil)
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
			return f.edit(cmd, func(view channel.View, c *channel.Channel) (string, error) {
				id, err := find(view.IDs, args[0])
				*c = c.Approve(id)
				return fmt.Sprintf("approve %s%s", id, f.who.because()), err
			})
		},
	}
	cmd.ValidArgsFunction = f.complete(allIDs)
	f.add(cmd)
	return cmd
}

func retryCommand() *cobra.Command {
	var f rejectFlags
	cmd := &cobra.Command{
		Use:   "retry [SNAPSHOT] --store STORE",
		Short: "Try a rejected snapshot again",
		Long: `Try a snapshot again whose rollout failed, or whose content failed under another name. You
need not name it if it is the only one that is rejected. With --fleet only that fleet
tries again what was rejected for it.`,
		Args: process.Args(cobra.MaximumNArgs(1)),
		RunE: func(cmd *cobra.Command, args []string) error {
			return f.edit(cmd, func(view channel.View, c *channel.Channel) (string, error) {
				r, err := rejection(view, *c, args, f.fleet)
				if err != nil {
					return "", err
				}
				*c, _ = c.RetryFor(r.Digest, f.fleet)
				return fmt.Sprintf("retry %s%s", r.Snapshot, f.who.because()), nil
			})
		},
	}
	cmd.ValidArgsFunction = f.complete(func(view channel.View) []snapshots.ID { return rejectedIDs(view.Channel.Spec.Rejected) })
	f.add(cmd)
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
		return r, process.WithHint(process.Usage("%s is not rejected", id), "rejected are: "+strings.Join(names, ", "))
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
