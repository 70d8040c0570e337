package cli

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/url"
	"path"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/hapsnap/hapsnap/internal/process"
	"github.com/hapsnap/hapsnap/pusher"
	"github.com/hapsnap/hapsnap/pusher/report"
	"github.com/hapsnap/hapsnap/snapshots"
	"github.com/hapsnap/hapsnap/snapshots/channel"
	"github.com/hapsnap/hapsnap/snapshots/stores"
)

// channelFlags are the flags of verbs that change a channel.
type channelFlags struct {
	storeFlags
	who    whoFlags
	output process.OutputFlag
	waits  waitFlags
	dryRun bool
	// rolling is what the pusher said of its rollout, if a verb asked it.
	rolling channel.Rolling
}

func (f *channelFlags) add(cmd *cobra.Command) {
	f.storeFlags.add(cmd)
	cmd.Flags().StringVar(&f.who.by, "by", whoami(), "who does this, as history and status show it")
	cmd.Flags().StringVar(&f.who.reason, "reason", "", "why, as history and status show it")
	cmd.Flags().StringVar(&f.who.author, "author", "", "author of the change, as 'Name <email>' (default: git's user.name and user.email, or else the user of the cluster, or of this machine)")
	f.output.AddTo(cmd)
	cmd.Flags().BoolVar(&f.dryRun, "dry-run", false, "say what would run and whether that takes a reload, and write nothing")
}

// channelEdit changes a channel, and says what it did. It gets the store's view, to find the snapshot
// that a person named. It returns [unchanged] if the channel already says so.
type channelEdit func(view channel.View, c *channel.Channel) (act, error)

// channelChange is what a verb made of a channel.
type channelChange struct {
	Changed bool         `json:"changed"`
	Subject string       `json:"subject,omitempty"` // what was done, as the history tells it
	By      string       `json:"by,omitempty"`
	Reason  string       `json:"reason,omitempty"`
	Before  channelState `json:"before"`
	After   channelState `json:"after"`
	Done    string       `json:"done"`    // what was done, or why nothing was changed
	Message string       `json:"message"` // what follows
	// Tidied is what was removed from the channel as well, since it had no effect any more.
	Tidied []string `json:"tidied,omitempty"`
	// DryRun is set where nothing was written, and Takes is what it would take then.
	DryRun bool   `json:"dryRun,omitempty"`
	Takes  *takes `json:"takes,omitempty"`
	// Reverted says who will undo this, if somebody will.
	Reverted string `json:"reverted,omitempty"`
	// Unusable says why what is wanted from now on cannot be run, if that is so.
	Unusable string `json:"unusable,omitempty"`

	does            act
	before, follows channel.Decision
}

// channelState is what a channel says, and what follows from it.
type channelState struct {
	Wanted  snapshots.ID   `json:"wanted,omitzero"` // what should run; none while what runs is held
	Because channel.Reason `json:"because"`
	Channel channel.Spec   `json:"channel"`
}

func stateOf(view channel.View, want channel.Decision) channelState {
	return channelState{Wanted: want.ID, Because: want.Because, Channel: view.Channel.Spec}
}

// edit changes the channel of the store, and prints what was done and what follows.
func (f *channelFlags) edit(cmd *cobra.Command, edit channelEdit) error {
	return f.with(cmd.Context(), func(store stores.Store) error { return f.editOf(cmd, store, edit) })
}

// editOf is edit for a store that is open.
func (f *channelFlags) editOf(cmd *cobra.Command, store stores.Store, edit channelEdit) error {
	return f.act(cmd, store, edit, func(done channelChange) error {
		return f.output.Write(cmd.OutOrStdout(), done, done.write)
	})
}

// act changes the channel, prints the answer, and waits if a flag says so.
func (f *channelFlags) act(cmd *cobra.Command, store stores.Store, edit channelEdit, answer func(channelChange) error) error {
	var waits waiting
	var before report.Status
	if f.waits.wait { // nothing is changed where nobody could wait
		var err error
		if waits, err = f.waitingFor(cmd, f.waits); err != nil {
			return err
		}
		if before, err = waits.read(cmd.Context()); err != nil {
			return err
		}
	}
	done, err := f.change(cmd.Context(), store, time.Now(), edit)
	if err != nil {
		return err
	}
	if f.dryRun {
		if done.Takes, err = f.takes(cmd, store, done); err != nil {
			return err
		}
	}
	if wanted := done.follows.ID; !wanted.IsZero() && (wanted != done.before.ID || wanted == done.does.snapshot) {
		done.Unusable = unusable(cmd.Context(), store, wanted)
	}
	done.warn(cmd.ErrOrStderr())
	if err := answer(done); err != nil || !f.waits.wait || f.dryRun {
		return err
	}
	g, err := goalOf(done.does, done.follows)
	if err != nil {
		return err
	}
	g.before = before.Rejected
	out := cmd.OutOrStdout()
	if f.output.String() != "text" {
		out = cmd.ErrOrStderr()
	}
	return waits.say(cmd, out, g)
}

// write says what was done, and then what follows.
func (c channelChange) write(w io.Writer) error {
	if c.DryRun {
		lines := append([]string{"dry run: nothing is written", c.Done, c.Message}, c.Tidied...)
		switch t := c.Takes; {
		case c.follows.Because == channel.BecausePause:
			lines = append(lines, "takes nothing while it is paused")
		case t == nil:
			lines = append(lines, "what that takes is not known: nothing says what runs, or what would run")
		case t.From == t.To:
			lines = append(lines, fmt.Sprintf("takes nothing where %s runs", t.From)) // whether an instance runs it, only its worker says
		default:
			lines = append(lines, strings.TrimSuffix(fmt.Sprintf("takes %s, from %s to %s: %s", verdicts[t.Verdict], t.From, t.To, t.Because), ": "))
		}
		_, err := fmt.Fprintln(w, strings.Join(lines, "\n"))
		return err
	}
	lines := append([]string{c.Done, c.Message}, c.Tidied...)
	_, err := fmt.Fprintln(w, strings.Join(lines, "\n"))
	return err
}

// change changes the channel of a store. It also removes what has no effect any more.
func (f *channelFlags) change(ctx context.Context, store stores.Store, now time.Time, edit channelEdit) (channelChange, error) {
	done := channelChange{By: f.who.by, Reason: f.who.reason, DryRun: f.dryRun}
	view, err := store.View(ctx)
	if err != nil {
		return done, err
	}
	reverted, err := revertedBy(ctx, store)
	if err != nil {
		return done, err
	}
	if len(view.IDs)+len(view.Refused) == 0 && saysNothing(view.Channel) { // the URL names another store than is meant
		return done, stores.NoSnapshots(ctx, store)
	}
	person, err := f.identity(ctx)
	if err != nil {
		return done, err
	}
	// If another writer changes the channel meanwhile, the edit runs again. Before and after have to be
	// of the last run.
	var does act
	var before channel.Decision
	try := func(c *channel.Channel) error {
		view.Channel = *c
		before = channel.Want(view, now)
		done.Before, done.Tidied = stateOf(view, before), nil
		var err error
		if does, err = edit(view, c); err != nil {
			return err
		}
		if done.Changed, err = altered(view.Channel, *c); err != nil {
			return err
		}
		if done.Changed {
			var stale []channel.Stale
			*c, stale = c.Tidied(view, f.rolling, now)
			for _, s := range stale {
				done.Tidied = append(done.Tidied, "taken out of the channel: "+s.Message)
			}
		}
		view.Channel = *c
		c.Act = channel.Act{Verb: does.verb, Snapshot: does.snapshot, By: f.who.by, Reason: f.who.reason, From: hostname(), Author: person}
		return nil
	}
	current := view.Channel
	if err = try(&current); err == nil && !f.dryRun {
		err = store.UpdateChannel(ctx, does.subject, now, try)
	}
	after := channel.Want(view, now)
	done.After, done.does, done.before, done.follows = stateOf(view, after), does, before, after
	if why, ok := errors.AsType[unchanged](err); ok {
		done.Changed, done.Done, done.Message = false, why.Error(), after.Message
		return done, nil
	}
	if err != nil && len(view.IDs)+len(view.Refused) == 0 {
		return done, stores.NoSnapshots(ctx, store)
	}
	if err != nil {
		return done, err
	}
	done.Subject, done.Done = does.subject, does.done
	done.Message = cmp.Or(does.follows, follows(before, after, does.snapshot))
	if done.Changed {
		done.Reverted = reverted
	}
	return done, nil
}

// saysNothing reports whether a channel is as one in which nobody has said anything.
func saysNothing(c channel.Channel) bool {
	says, err := altered(channel.Channel{}, channel.Channel{Spec: c.Spec})
	return err == nil && !says
}

// altered reports whether two channels say different things.
func altered(a, b channel.Channel) (bool, error) {
	before, err := a.Marshal()
	if err != nil {
		return false, err
	}
	after, err := b.Marshal()
	return string(before) != string(after), err
}

// managed is a store whose channel another tool may keep as it is elsewhere.
type managed interface {
	// ChannelManager names the tool, or is "".
	ChannelManager(ctx context.Context) (string, error)
}

// revertedBy names who will undo a change of the channel, if somebody will.
func revertedBy(ctx context.Context, store stores.Store) (string, error) {
	s, ok := store.(managed)
	if !ok {
		return "", nil
	}
	return s.ChannelManager(ctx)
}

// unusable says why pushers will not run a snapshot, "" if nothing is known of that. A store that does not answer now is no
// reason.
func unusable(ctx context.Context, store stores.Store, id snapshots.ID) string {
	_, err := store.Manifest(ctx, id)
	if errors.Is(err, snapshots.ErrUntrusted) || errors.Is(err, snapshots.ErrCorrupt) {
		return err.Error()
	}
	return ""
}

// warn says that a change will not last, or that nothing comes of it.
func (c channelChange) warn(w io.Writer) {
	if c.Reverted != "" {
		fmt.Fprintf(w, "warning: %s manages the channel, and will undo this\n\thint: change the channel there, or take it out of what is delivered\n", c.Reverted)
	}
	if c.Unusable != "" {
		fmt.Fprintf(w, "warning: pushers that find the same keep what they run: %s\n\thint: pusher verify says which snapshots can be run\n", c.Unusable)
	}
}

func acceptRewindCommand() *cobra.Command {
	var f channelFlags
	var state string
	cmd := &cobra.Command{
		Use:   "accept-rewind [SNAPSHOT...] --store STORE --state STATE",
		Short: "Accept that snapshots, or the channel, of a store that was set back are lost",
		Long: `Accept that snapshots of a store that was set back, or its channel, are lost, so that
pushers go on with what is there. Until then pushers keep what runs, and pusher status
lists what they saw before and do not find now. If you restore the store instead, you do
not need this command.

The command gives up the snapshots that the pusher saw, as its state says, and those that
tags of a git store name. Name the snapshots that only the compiler saw. The command writes
them into the channel, where all pushers of the store and the compiler read them. A pusher
with another state may have seen other snapshots, and needs the command too. If the channel
is gone, the command makes a new one. The new channel has no pin and requires no approval.`,
		RunE: func(cmd *cobra.Command, args []string) error {
			if state == "" {
				return process.WithHint(process.Usage("no state is named"), "use --state with the value that pusher run has: the state says what the pusher saw")
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
	seen, err := pusher.ParseSeen(data, state)
	return seen, hinted(err)
}

// acceptRewind writes to the channel what is given up, and prints what should run then. It opens the
// store without what was seen of it, which would make the store hold.
func (f *channelFlags) acceptRewind(cmd *cobra.Command, store stores.Store, seen channel.Seen, args []string) error {
	ctx, now := cmd.Context(), time.Now()
	if !sameStore(seen.Store, store.String()) {
		return process.WithHint(process.Usage("the pusher with this state reads %s, and not %s", seen.Store, store), "name the same store and branch")
	}
	person, err := f.identity(ctx)
	if err != nil {
		return err
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
	done := channelChange{By: f.who.by, Reason: f.who.reason, Done: "nothing that the pusher saw is gone"}
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
		if f.dryRun {
			done.DryRun, done.Done = true, "dry run: nothing is written\n"+done.Subject
			return f.output.Write(cmd.OutOrStdout(), done, func(w io.Writer) error {
				_, err := fmt.Fprintln(w, done.Done)
				return err
			})
		}
		err = store.UpdateChannel(ctx, done.Subject, now, func(c *channel.Channel) error {
			done.Before = channelState{Channel: c.Spec}
			*c = c.RewindAccepted(accepted)
			c.Act = channel.Act{Verb: channel.VerbAcceptRewind, By: f.who.by, Reason: f.who.reason, From: hostname(), Author: person}
			return nil
		})
		if err != nil {
			return err
		}
	}
	want := channel.Want(view, now)
	if done.After, done.Message = stateOf(view, want), want.Message; done.Changed {
		done.Done = done.Subject
	} else {
		done.Before = done.After
	}
	return f.output.Write(cmd.OutOrStdout(), done, done.write)
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

// sameStore reports whether two URLs may be of one store: people may reach a git repository in another
// way than the pusher does.
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
