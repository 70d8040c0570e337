package gitstore

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/go-git/go-git/v5/plumbing"
	"github.com/go-git/go-git/v5/plumbing/filemode"
	"github.com/go-git/go-git/v5/plumbing/object"
	"github.com/go-git/go-git/v5/plumbing/storer"

	"github.com/hapsnap/hapsnap/snapshots"
	"github.com/hapsnap/hapsnap/snapshots/channel"
)

// The journal of acts is the history of the channel's branch, which also has what people did by hand.
// Turns of rollouts are in a file of a branch of their own (<branch>-journal): on the channel's branch, a
// pusher without a key that signs would leave a tip that nobody trusts.
const journalFile = "journal.jsonl"

// journalDepth is how many commits of the channel are read for the journal.
const journalDepth = channel.MaxEntries

// Journal returns what was done to the channel and the turns of rollouts that were recorded, the oldest
// entry first.
func (s *Store) Journal(ctx context.Context) ([]channel.Entry, error) {
	done, err := s.begin(ctx)
	if err != nil {
		return nil, err
	}
	defer done()
	r, err := s.list(ctx)
	if err != nil {
		return nil, err
	}
	turns, err := s.turns(ctx, r)
	if err != nil {
		return nil, fmt.Errorf("read the journal of %s: %w", s, err)
	}
	var out []channel.Entry
	if !r.channel.IsZero() {
		if err := s.cache.ensure(ctx, s.remote, r.channel); err != nil {
			return nil, fmt.Errorf("read the journal of %s: %w", s, err)
		}
		if err := s.cache.fetch(ctx, s.remote, r.channel, journalDepth); err != nil {
			return nil, fmt.Errorf("read the journal of %s: %w", s, err)
		}
		out = s.acts(s.cache.storage, r.channel)
	}
	out = append(out, channel.ParseEntries(turns)...) // an act of the same second comes first: turns follow from acts
	slices.SortStableFunc(out, func(a, b channel.Entry) int { return a.At.Compare(b.At) })
	return out, nil
}

// acts returns what the commits of a channel say, as far as they are in the cache, the oldest first.
func (s *Store) acts(in storer.EncodedObjectStorer, commit plumbing.Hash) []channel.Entry {
	var out []channel.Entry
	for len(out) < journalDepth {
		c, err := object.GetCommit(in, commit)
		if err != nil {
			break // the rest was not fetched
		}
		out = append(out, actOf(s.options.Name, c))
		if len(c.ParentHashes) == 0 {
			break
		}
		commit = c.ParentHashes[0]
	}
	slices.Reverse(out)
	return out
}

// actOf returns what a commit of the channel says. One that somebody made by hand has no trailers.
func actOf(name string, c *object.Commit) channel.Entry {
	subject, rest, _ := strings.Cut(c.Message, "\n")
	act := channel.Act{Author: channel.Person{Name: c.Author.Name, Email: c.Author.Email}}
	for line := range strings.Lines(rest) {
		key, value, ok := strings.Cut(strings.TrimSpace(line), ": ")
		if !ok {
			continue
		}
		switch key {
		case "Hapsnap-Act":
			act.Verb = channel.Verb(value)
		case "Hapsnap-Snapshot":
			act.Snapshot, _ = snapshots.ParseID(value) // a trailer by hand may be anything
		case "Hapsnap-By":
			act.By = value
		case "Hapsnap-Reason":
			act.Reason = value
		case "Hapsnap-From":
			act.From = value
		}
	}
	if act.By == "" {
		act.By = c.Author.Name
	}
	return act.Entry(strings.TrimPrefix(subject, name+" channel: "), c.Author.When)
}

// turns returns the file with the turns of rollouts, empty if there is none.
func (s *Store) turns(ctx context.Context, r refs) ([]byte, error) {
	if r.journal.IsZero() {
		return nil, nil
	}
	commit, err := s.openAny(ctx, r.journal)
	if err != nil {
		return nil, err
	}
	data, err := commit.file(journalFile, 2*channel.MaxJournalBytes)
	if errors.Is(err, errNoFile) {
		return nil, nil
	}
	return data, s.blameCache(err)
}

// Record commits turns of rollouts to the branch of the journal.
func (s *Store) Record(ctx context.Context, now time.Time, entries ...channel.Entry) error {
	if len(entries) == 0 {
		return nil
	}
	done, err := s.begin(ctx)
	if err != nil {
		return err
	}
	defer done()
	err = repeat(ctx, func() error {
		r, err := s.list(ctx)
		if err != nil {
			return err
		}
		journal, err := s.turns(ctx, r)
		if err != nil {
			return err
		}
		// A push whose answer was lost may have arrived.
		if known := channel.ParseEntries(journal); len(known) > 0 && known[len(known)-1] == entries[len(entries)-1] {
			return nil
		}
		if journal, err = channel.AppendEntries(journal, entries...); err != nil {
			return err
		}
		return s.pushJournal(ctx, r.journal, journal, entries[len(entries)-1].Text, now)
	})
	if err != nil {
		return fmt.Errorf("write the journal of %s: %w", s, err)
	}
	return nil
}

func (s *Store) pushJournal(ctx context.Context, parent plumbing.Hash, journal []byte, subject string, now time.Time) error {
	b := newBuilder(nil)
	hash, err := b.blob(journal)
	if err != nil {
		return err
	}
	tree, err := b.tree([]object.TreeEntry{{Name: journalFile, Mode: filemode.Regular, Hash: hash}})
	if err != nil {
		return err
	}
	commit, err := b.commit(tree, parent, s.author(now), message(printable(s.options.Name+" journal: "+subject), nil), s.sign)
	if err != nil {
		return err
	}
	pack, err := b.pack()
	if err != nil {
		return err
	}
	return s.push(ctx, []update{{s.names.journal(), parent, commit}}, pack)
}
