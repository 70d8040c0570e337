package cli

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/url"
	"path"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/hapsnap/hapsnap/internal/process"
	"github.com/hapsnap/hapsnap/pusher"
	"github.com/hapsnap/hapsnap/snapshots"
	"github.com/hapsnap/hapsnap/snapshots/channel"
	"github.com/hapsnap/hapsnap/snapshots/stores"
)

func acceptRewindCommand() *cobra.Command {
	var f channelFlags
	var state string
	cmd := &cobra.Command{
		Use:   "accept-rewind [SNAPSHOT...] --store STORE --state STATE",
		Short: "Give up what is gone of a store or channel that was set back",
		Long: `Give up what is gone of a store that was set back, or of its channel, so that pushers
go on with what is there. Until then they keep what runs, and pusher status says what
they saw and do not find. To put back what is gone needs no command.

The command gives up what the pusher saw, as its state says, and what tags of a git store
name. Name the snapshots that only the compiler saw. The command writes all of this into
the channel, for all pushers of the store and the compiler. A pusher with another state
may have seen something else, and needs the command too. If the channel is gone, the
command makes it anew. The new channel says nothing else: neither what was pinned nor
that approval is required.`,
		RunE: func(cmd *cobra.Command, args []string) error {
			if state == "" {
				return process.WithHint(process.Usage("no state is named"), "use --state with what pusher run was given: it says what the pusher saw")
			}
			seen, err := f.readSeen(cmd.Context(), state)
			if err != nil {
				return err
			}
			return f.with(cmd.Context(), func(store stores.Store) error { return f.acceptRewind(cmd, store, seen, args) })
		},
	}
	f.add(cmd)
	cmd.Flags().StringVar(&state, "state", "", "state of the pusher, as for run: a file, or secret:NAMESPACE/NAME (required)")
	return cmd
}

// readSeen returns what a pusher saw of its store, from its state.
func (f *clusterFlags) readSeen(ctx context.Context, state string) (channel.Seen, error) {
	if !inSecret(state) {
		seen, err := pusher.ReadSeen(state)
		return seen, hinted(err)
	}
	data, err := f.readSecret(ctx, state)
	if err != nil {
		return channel.Seen{}, hinted(err)
	}
	return pusher.ParseSeen(data, state)
}

// acceptRewind writes into the channel what is given up, and prints what should run then.
// The store that is written to has seen nothing, or it would hold.
func (f *channelFlags) acceptRewind(cmd *cobra.Command, store stores.Store, seen channel.Seen, args []string) error {
	ctx, now := cmd.Context(), time.Now()
	if !sameStore(seen.Store, store.String()) {
		return process.WithHint(process.Usage("the pusher with this state reads %s, and not %s", seen.Store, store), "name the same store and branch")
	}
	accepted := channel.AcceptedRewind{By: f.who.by, Reason: f.who.reason, At: now}
	for _, name := range args {
		id, err := snapshots.ParseID(name)
		if err != nil {
			return process.WithHint(process.Usage("%w", err), "name it in full, as the compiler says it")
		}
		accepted.Snapshots = append(accepted.Snapshots, id)
	}
	reader, err := f.open(ctx, slog.New(slog.DiscardHandler))
	if err != nil {
		return err
	}
	defer reader.Close()
	seen.Store = reader.String()
	reader.Remember(seen)
	done := channelChange{By: f.who.by, Reason: f.who.reason, Message: "nothing is gone of what the pusher saw"}
	var view channel.View
	for try := 1; ; try++ {
		view, err = reader.View(ctx)
		rewound, isRewound := errors.AsType[*channel.RewoundError](err)
		if isRewound && try <= 3 {
			accepted.Snapshots = append(accepted.Snapshots, rewound.Snapshots...)
			if rewound.Channel != "" {
				accepted.Channels = append(accepted.Channels, rewound.Channel)
			}
		} else if err != nil {
			return err
		}
		missing := slices.ContainsFunc(accepted.Snapshots, func(id snapshots.ID) bool {
			return !view.Channel.AcceptsRewind(&channel.RewoundError{Snapshots: []snapshots.ID{id}})
		})
		if !isRewound && !missing {
			break
		}
		done.Subject, done.Changed = f.rewindSubject(accepted), true
		err = store.UpdateChannel(ctx, done.Subject, now, func(c *channel.Channel) error {
			done.Before = channelState{Channel: c.Spec}
			*c = c.RewindAccepted(accepted)
			return nil
		})
		if err != nil {
			return err
		}
	}
	var wanted string
	if done.After, wanted = stateOf(view, now); done.Changed {
		done.Message = done.Subject + "\n" + wanted
	} else {
		done.Before = done.After
	}
	return f.print(cmd, done)
}

// rewindSubject says what is given up.
func (f *channelFlags) rewindSubject(r channel.AcceptedRewind) string {
	var gone []string
	for _, id := range r.Snapshots {
		gone = append(gone, id.String())
	}
	slices.Sort(gone)
	gone = slices.Compact(gone)
	if len(gone) > 3 {
		gone = append([]string{fmt.Sprintf("%d snapshots", len(gone)-1)}, gone[len(gone)-1])
	}
	if len(r.Channels) > 0 {
		gone = append(gone, "the channel that was seen")
	}
	return fmt.Sprintf("give up %s%s", strings.Join(gone, ", "), f.who.because())
}

// sameStore reports whether two URLs can be of one store: people may reach a git
// repository in another way than the pusher does.
func sameStore(a, b string) bool {
	if a == b || a == "" {
		return true
	}
	x, err := url.Parse(a)
	y, err2 := url.Parse(b)
	return err == nil && err2 == nil && strings.HasPrefix(x.Scheme, "git+") && strings.HasPrefix(y.Scheme, "git+") &&
		x.Query().Get("branch") == y.Query().Get("branch") &&
		strings.TrimSuffix(path.Base(x.Path), ".git") == strings.TrimSuffix(path.Base(y.Path), ".git")
}
