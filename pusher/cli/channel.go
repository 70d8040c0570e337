package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/spf13/cobra"

	"github.com/hapsnap/hapsnap/internal/process"
	"github.com/hapsnap/hapsnap/snapshots"
	"github.com/hapsnap/hapsnap/snapshots/channel"
	"github.com/hapsnap/hapsnap/snapshots/stores"
)

// channelFlags are those of the verbs that change a channel.
type channelFlags struct {
	storeFlags
	who    whoFlags
	output process.OutputFlag
}

func (f *channelFlags) add(cmd *cobra.Command) {
	f.storeFlags.add(cmd)
	f.who.add(cmd)
	f.output.AddTo(cmd)
}

// channelEdit changes a channel, and says in a few words what it did. It gets what
// the store holds, to find in it what a person named. [unchanged] is its error where
// there is nothing to change.
type channelEdit func(view channel.View, c *channel.Channel) (subject string, err error)

// unchanged says why a channel stays as it is, though nothing went wrong.
type unchanged string

func (u unchanged) Error() string { return string(u) }

// channelChange is what a verb made of a channel.
type channelChange struct {
	Changed bool         `json:"changed"`
	Subject string       `json:"subject,omitempty"` // what was done, as the history tells it
	By      string       `json:"by,omitempty"`
	Reason  string       `json:"reason,omitempty"`
	Before  channelState `json:"before"`
	After   channelState `json:"after"`
	Message string       `json:"message"` // what should run now, and why, or why nothing was changed
	// Reverted says who will undo this, if somebody will.
	Reverted string `json:"reverted,omitempty"`
}

// channelState is what a channel says, and what follows from it.
type channelState struct {
	Wanted  snapshots.ID   `json:"wanted,omitzero"` // what should run; none while what runs is held
	Because channel.Reason `json:"because"`
	Channel channel.Spec   `json:"channel"`
}

func stateOf(view channel.View, now time.Time) (channelState, string) {
	want := channel.Want(view, now)
	return channelState{Wanted: want.ID, Because: want.Because, Channel: view.Channel.Spec}, want.Message
}

// edit changes the channel of the store and prints what should run then.
func (f *channelFlags) edit(cmd *cobra.Command, edit channelEdit) error {
	return f.editSaying(cmd, edit, nil)
}

// editSaying changes the channel of the store and prints a message of the verb's own. It
// is asked for the message after the edit.
func (f *channelFlags) editSaying(cmd *cobra.Command, edit channelEdit, message func() string) error {
	return f.with(cmd.Context(), func(store stores.Store) error { return f.editOf(cmd, store, edit, message) })
}

// editOf is editSaying for a store that is open. Without a message it is edit.
func (f *channelFlags) editOf(cmd *cobra.Command, store stores.Store, edit channelEdit, message func() string) error {
	done, err := f.change(cmd.Context(), store, time.Now(), edit)
	if err != nil {
		return err
	}
	if message != nil {
		done.Message = message()
	}
	done.warn(cmd.ErrOrStderr())
	return f.print(cmd, done)
}

func (f *channelFlags) print(cmd *cobra.Command, done channelChange) error {
	return f.output.Write(cmd.OutOrStdout(), done, func(w io.Writer) error {
		_, err := fmt.Fprintln(w, done.Message)
		return err
	})
}

// change changes the channel of a store.
func (f *channelFlags) change(ctx context.Context, store stores.Store, now time.Time, edit channelEdit) (channelChange, error) {
	done := channelChange{By: f.who.by, Reason: f.who.reason}
	view, err := store.View(ctx)
	if err != nil {
		return done, err
	}
	reverted, err := revertedBy(ctx, store)
	if err != nil {
		return done, err
	}
	// What an edit finds in a channel that another writer changes meanwhile is found
	// again, so that before and after are those of this change.
	current := view.Channel
	if done.Subject, err = edit(view, &current); err == nil {
		err = store.UpdateChannel(ctx, done.Subject, now, func(c *channel.Channel) error {
			view.Channel = *c
			done.Before, _ = stateOf(view, now)
			if _, err := edit(view, c); err != nil {
				return err
			}
			done.Changed, err = altered(view.Channel, *c)
			view.Channel = *c
			return err
		})
	}
	if why, ok := errors.AsType[unchanged](err); ok {
		done.Before, _ = stateOf(view, now)
		done.After, done.Subject, done.Message = done.Before, "", why.Error()
		return done, nil
	}
	if err != nil {
		return done, err
	}
	done.After, done.Message = stateOf(view, now)
	if done.Changed {
		done.Reverted = reverted
	}
	return done, nil
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

// warn says that a change will not last.
func (c channelChange) warn(w io.Writer) {
	if c.Reverted != "" {
		fmt.Fprintf(w, "warning: %s keeps the channel as it is elsewhere, and will undo this\n\thint: change the channel there, or take it out of what is delivered\n", c.Reverted)
	}
}
