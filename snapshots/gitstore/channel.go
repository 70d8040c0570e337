package gitstore

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/go-git/go-git/v5/plumbing"
	"github.com/go-git/go-git/v5/plumbing/filemode"
	"github.com/go-git/go-git/v5/plumbing/object"

	"github.com/hapsnap/hapsnap/snapshots/channel"
	"github.com/hapsnap/hapsnap/snapshots/stores/sequence"
)

// channelFile is the one file of the channel's branch that is ours.
const channelFile = "channel.yaml"

// UpdateChannel lets edit change the channel, and commits what it made of it.
// When another writer was faster or a push fails, it is read and edited again:
// edit may be called several times, also after its first result arrived and the
// answer was lost. The error of edit is returned as it is.
func (s *Store) UpdateChannel(ctx context.Context, subject string, now time.Time, edit func(*channel.Channel) error) error {
	done, err := s.begin(ctx)
	if err != nil {
		return err
	}
	defer done()
	pushed := false
	return repeat(ctx, func() error {
		r, err := s.list(ctx)
		if err != nil && pushed {
			return again(err)
		}
		if err != nil {
			return err
		}
		old, beside, err := s.readChannel(ctx, r)
		if err != nil {
			return err
		}
		data, changed, err := sequence.Edit(old, edit)
		if err != nil || !changed {
			return err
		}
		pushed = true
		return s.pushChannel(ctx, r.channel, beside, data, channelMessage(s.options.Name, subject), now)
	})
}

// readChannel returns the channel, and what else is at the root of its branch.
// A branch that was never there is the channel in which nobody has said
// anything; one without the file, or that went away or back, is an error.
func (s *Store) readChannel(ctx context.Context, r refs) (channel.Channel, []object.TreeEntry, error) {
	if r.channel.IsZero() && s.channel.IsZero() {
		return channel.Channel{}, nil, nil
	}
	where := fmt.Sprintf("branch %s of %s", s.names.channel().Short(), s)
	if r.channel.IsZero() {
		gone := &channel.RewoundError{Channel: s.channel.String(), Message: fmt.Sprintf("it is gone, and was at commit %.12s", s.channel)}
		return channel.Channel{}, nil, fmt.Errorf("read %s: %w", where, gone)
	}
	commit, err := s.open(ctx, r.channel)
	if err != nil {
		return channel.Channel{}, nil, fmt.Errorf("read %s: %w", where, err)
	}
	data, err := commit.file(channelFile, channel.MaxSize)
	if err != nil {
		return channel.Channel{}, nil, fmt.Errorf("read %s: %w", where, s.blameCache(err))
	}
	current, err := channel.Parse(data)
	if err != nil {
		return channel.Channel{}, nil, fmt.Errorf("read %s in %s: %w", channelFile, where, err)
	}
	if err := s.follows(ctx, commit, current); err != nil {
		return channel.Channel{}, nil, fmt.Errorf("read %s: %w", where, err)
	}
	s.channel = r.channel
	return current, commit.root.Entries, nil
}

// pushChannel commits the file on top of the tip, leaving what is beside it.
func (s *Store) pushChannel(ctx context.Context, parent plumbing.Hash, beside []object.TreeEntry, data []byte, message string, now time.Time) error {
	b := newBuilder(nil)
	hash, err := b.blob(data)
	if err != nil {
		return fmt.Errorf("encode channel: %w", err)
	}
	entries := slices.DeleteFunc(slices.Clone(beside), func(e object.TreeEntry) bool { return e.Name == channelFile })
	tree, err := b.tree(append(entries, object.TreeEntry{Name: channelFile, Mode: filemode.Regular, Hash: hash}))
	if err != nil {
		return fmt.Errorf("encode channel: %w", err)
	}
	commit, err := b.commit(tree, parent, s.author(now), message, s.sign)
	if err != nil {
		return err
	}
	pack, err := b.pack()
	if err != nil {
		return err
	}
	updates := []update{{s.names.channel(), parent, commit}}
	if err := s.push(ctx, updates, pack); err != nil {
		return fmt.Errorf("push %s: %w", s.names.channel().Short(), err)
	}
	s.channel = commit
	return nil
}
