package cli

import (
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/hapsnap/hapsnap/internal/process"
	"github.com/hapsnap/hapsnap/snapshots"
)

func retryCommand() *cobra.Command {
	var f rejectFlags
	cmd := &cobra.Command{
		Use:   "retry [SNAPSHOT] --store STORE",
		Short: "Have a rejected snapshot tried again",
		Long: `Have a snapshot tried again whose rollout failed, or whose content failed under
another name. It need not be named if it is the only one that is rejected. With
--fleet only what was rejected for that fleet is tried again, by that fleet.`,
		Args: process.Args(cobra.MaximumNArgs(1)),
		RunE: func(cmd *cobra.Command, args []string) error {
			return f.edit(cmd, func(view snapshots.View, c *snapshots.Channel) (string, error) {
				r, err := rejection(view, *c, args, f.fleet)
				if err != nil {
					return "", err
				}
				*c, _ = c.RetryFor(r.Digest, f.fleet)
				return fmt.Sprintf("retry %s%s", r.Snapshot, f.who.because()), nil
			})
		},
	}
	cmd.ValidArgsFunction = f.complete(func(view snapshots.View) []snapshots.ID { return rejectedIDs(view.Channel.Spec.Rejected) })
	f.add(cmd)
	return cmd
}

// rejection returns the one that a person means, of those of a fleet if that is named.
func rejection(view snapshots.View, c snapshots.Channel, args []string, fleet string) (snapshots.Rejection, error) {
	all := slices.DeleteFunc(slices.Clone(c.Spec.Rejected), func(r snapshots.Rejection) bool { return fleet != "" && r.Fleet != fleet })
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
		return snapshots.Rejection{}, process.WithHint(process.Usage("%d snapshots are rejected, not one", len(names)),
			"name one: "+strings.Join(names, ", "))
	}
	id, err := find(append(view.IDs, rejectedIDs(all)...), args[0])
	if err != nil {
		return snapshots.Rejection{}, err
	}
	c.Spec.Rejected = all
	r, ok := c.Rejection(id)
	if !ok {
		return r, process.WithHint(process.Usage("%s is not rejected", id), "rejected are: "+strings.Join(names, ", "))
	}
	return r, nil
}

func rejectedIDs(all []snapshots.Rejection) []snapshots.ID {
	var out []snapshots.ID
	for _, r := range all {
		out = append(out, r.Snapshot)
	}
	return out
}
