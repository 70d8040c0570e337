package cli

import (
	"fmt"
	"io"
	"time"

	"github.com/spf13/cobra"

	"github.com/hapsnap/hapsnap/internal/process"
	"github.com/hapsnap/hapsnap/snapshots"
	"github.com/hapsnap/hapsnap/snapshots/stores"
)

func confirmEndpointsCommand() *cobra.Command {
	var f channelFlags
	var state string
	cmd := &cobra.Command{
		Use:   "confirm-endpoints [LOSS] --store STORE [--state STATE]",
		Short: "Say that endpoints which the pusher keeps are gone for good",
		Long: `Say that endpoints which the pusher keeps, because too many were gone from their
source at once, are gone for good. Their backends then have no servers and answer 503.

LOSS is the name that pusher status gives to what is kept; with --state it is read from
there. It stands for exactly what is kept now: if more is lost before the pusher reads
this, nothing is confirmed.`,
		Args: process.Args(cobra.MaximumNArgs(1)),
		RunE: func(cmd *cobra.Command, args []string) error {
			loss, services, err := f.loss(cmd, args, state)
			if err != nil {
				return err
			}
			now := time.Now()
			return f.with(cmd.Context(), func(store stores.Store) error {
				done, err := f.change(cmd.Context(), store, now, func(_ snapshots.View, c *snapshots.Channel) (string, error) {
					*c = c.Confirmed(snapshots.Confirmation{Loss: loss, By: f.who.by, Reason: f.who.reason, At: now})
					return fmt.Sprintf("confirm that endpoints are gone, loss %s%s", loss, f.who.because()), nil
				})
				if err != nil {
					return err
				}
				done.Message = fmt.Sprintf("the endpoints of loss %s%s are taken for gone, if they still are", loss, services)
				done.warn(cmd.ErrOrStderr())
				return f.output.Write(cmd.OutOrStdout(), done, func(w io.Writer) error {
					_, err := fmt.Fprintln(w, done.Message)
					return err
				})
			})
		},
	}
	f.add(cmd)
	cmd.Flags().StringVar(&state, "state", "", "state of the pusher, as for run, to tell what is kept")
	return cmd
}

// loss returns the loss that is meant, and of what it is as far as that is known.
func (f *channelFlags) loss(cmd *cobra.Command, args []string, state string) (loss, services string, err error) {
	if len(args) > 0 {
		loss = args[0]
	}
	if state == "" {
		if loss == "" {
			return "", "", process.WithHint(process.Usage("it cannot be told what is to be confirmed"), "name the loss that pusher status tells of, or --state")
		}
		return loss, "", nil
	}
	status, err := f.readStatus(cmd.Context(), state)
	if err != nil {
		return "", "", err
	}
	switch kept := status.Kept; {
	case kept == nil:
		return "", "", process.WithHint(process.Usage("no endpoints are kept that their source does not have"), "pusher status says what is")
	case loss != "" && loss != kept.Loss:
		return "", "", process.WithHint(process.Usage("the loss is %s by now, and not %s", kept.Loss, loss), "look at pusher status again: something else is kept")
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
