package gitstore

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/go-git/go-git/v5/plumbing"
	"github.com/go-git/go-git/v5/plumbing/object"
	"github.com/go-git/go-git/v5/plumbing/storer"

	"github.com/hapsnap/hapsnap/internal/process"
	"github.com/hapsnap/hapsnap/snapshots"
	"github.com/hapsnap/hapsnap/snapshots/channel"
	"github.com/hapsnap/hapsnap/snapshots/stores/sequence"
)

// View returns the IDs of all snapshots and the channel. It costs one listing of the repository's
// references, and a fetch when the channel has changed. A repository without the store's branches is an
// empty store. It returns an error if the repository cannot be read, and if a branch is not as stores
// left it: [ErrForeign], [ErrRewound].
func (s *Store) View(ctx context.Context) (view channel.View, err error) {
	err = s.look(ctx, func(r refs, ids []snapshots.ID) error {
		current, _, err := s.readChannel(ctx, r)
		seen := channel.Seen{Store: s.String()}
		if !s.reviewed() {
			seen.Head = s.seen
		}
		if !s.channel.IsZero() {
			seen.Channel = s.channel.String()
		}
		view = channel.View{IDs: ids, HeadOnly: s.reviewed(), Channel: current, Seen: seen}
		return err
	})
	if err != nil {
		return channel.View{}, err
	}
	return view, nil
}

// IDs returns the IDs of all snapshots, the newest last. It does not read the channel; otherwise it is
// like View.
func (s *Store) IDs(ctx context.Context) (ids []snapshots.ID, err error) {
	err = s.look(ctx, func(_ refs, found []snapshots.ID) error {
		ids = found
		return nil
	})
	return ids, err
}

// look lists the repository's references, and calls a function with them and the snapshots.
func (s *Store) look(ctx context.Context, take func(refs, []snapshots.ID) error) error {
	done, err := s.begin(ctx)
	if err != nil {
		return err
	}
	defer done()
	return repeat(ctx, func() error {
		r, err := s.list(ctx)
		if err != nil {
			return err
		}
		head, err := s.head(ctx, r)
		if err != nil {
			return err
		}
		ids := r.ids(head)
		if s.reviewed() {
			ids = upTo(ids, head)
		}
		return take(r, ids)
	})
}

// Journal returns what was done to the channel and the entries about rollouts that were recorded, the oldest
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
	if !r.channel.IsZero() && s.acts.tip != r.channel {
		if err := s.cache.ensure(ctx, s.remote, r.channel); err != nil {
			return nil, fmt.Errorf("read the journal of %s: %w", s, err)
		}
		if err := s.cache.fetch(ctx, s.remote, r.channel, journalDepth); err != nil {
			return nil, fmt.Errorf("read the journal of %s: %w", s, err)
		}
		s.acts.tip, s.acts.all = r.channel, acts(s.options.Name, s.cache.storage, r.channel)
	}
	var out []channel.Entry
	if !r.channel.IsZero() {
		out = slices.Clone(s.acts.all)
	}
	for _, e := range channel.ParseEntries(turns) {
		if e.Turn { // what was done to the channel is in its history, and in no file that anybody who may push could write
			out = append(out, e)
		}
	}
	// An act of the same second comes first: entries about rollouts follow from acts.
	slices.SortStableFunc(out, func(a, b channel.Entry) int { return a.At.Compare(b.At) })
	return out, nil
}

// turns returns the file with the entries about rollouts, empty if there is none.
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

// Others returns the branches of the repository, but for the channels of stores: one of them
// may be the store that is meant.
func (s *Store) Others(ctx context.Context) (what string, names []string, err error) {
	done, err := s.begin(ctx)
	if err != nil {
		return "", nil, err
	}
	defer done()
	if _, err := s.list(ctx); err != nil {
		return "", nil, err
	}
	return "branches", s.branches, nil
}

// Get returns a snapshot whose every digest has been verified. The error wraps [snapshots.ErrNotFound]
// or [snapshots.ErrCorrupt] where one of them is why. A snapshot that was fetched before is returned
// even while the repository is out of reach.
func (s *Store) Get(ctx context.Context, id snapshots.ID) (snapshot snapshots.Snapshot, err error) {
	err = s.find(ctx, id, func(commit plumbing.Hash) error {
		snapshot, _, err = s.load(ctx, commit)
		if err == nil && snapshot.ID() != id {
			err = fmt.Errorf("%w: it holds %s", snapshots.ErrCorrupt, snapshot.ID())
		}
		return err
	})
	if err != nil {
		return snapshots.Snapshot{}, fmt.Errorf("read snapshot %s: %w", id, err)
	}
	return snapshot, nil
}

// Manifest returns the manifest of a snapshot. The files are fetched with it,
// but not read.
func (s *Store) Manifest(ctx context.Context, id snapshots.ID) (manifest snapshots.Manifest, err error) {
	err = s.find(ctx, id, func(commit plumbing.Hash) error {
		r, err := s.open(ctx, commit)
		if err != nil {
			return err
		}
		if manifest, _, err = r.manifest(); err != nil {
			return s.blameCache(err)
		}
		if named := snapshots.NewID(manifest.Spec.Revision, manifest.Spec.Digest); named != id {
			return fmt.Errorf("%w: it holds %s", snapshots.ErrCorrupt, named)
		}
		return nil
	})
	if err != nil {
		return snapshots.Manifest{}, fmt.Errorf("read manifest of %s: %w", id, err)
	}
	return manifest, nil
}

// find calls read with the commit of a snapshot: first with the commit that was listed last, if any,
// since its content is verified in any case.
func (s *Store) find(ctx context.Context, id snapshots.ID, read func(plumbing.Hash) error) error {
	done, err := s.begin(ctx)
	if err != nil {
		return err
	}
	defer done()
	commit, listed := s.last.tags[id]
	return repeat(ctx, func() error {
		if !listed {
			r, err := s.list(ctx)
			if err != nil {
				return err
			}
			if commit, err = s.commitOf(ctx, r, id); err != nil {
				return err
			}
		}
		listed = false
		return read(commit)
	})
}

// Commit returns the hash of the commit of a snapshot, for links to it. The commit is not read.
func (s *Store) Commit(ctx context.Context, id snapshots.ID) (hash string, err error) {
	done, err := s.begin(ctx)
	if err != nil {
		return "", err
	}
	defer done()
	r, err := s.list(ctx)
	if err != nil {
		return "", err
	}
	commit, err := s.commitOf(ctx, r, id)
	if err != nil {
		return "", fmt.Errorf("find the commit of %s in %s: %w", id, s, err)
	}
	return commit.String(), nil
}

// commitOf returns the commit of a snapshot: that of its tag, or the tip of the branch if it is the
// snapshot and has no tag.
func (s *Store) commitOf(ctx context.Context, r refs, id snapshots.ID) (plumbing.Hash, error) {
	if commit, ok := r.tags[id]; ok {
		return commit, nil
	}
	if s.reviewed() {
		// A snapshot that has no tag is the tip of the branch for review, if the compiler was stopped before it got to
		// the tag.
		if r.review.IsZero() || slices.Contains(slices.Collect(maps.Values(r.tags)), r.review) {
			return plumbing.ZeroHash, snapshots.ErrNotFound
		}
		tip, err := s.openAny(ctx, r.review)
		if err != nil {
			return plumbing.ZeroHash, err
		}
		m, _, err := tip.manifest()
		if isCorrupt(err) || (err == nil && snapshots.NewID(m.Spec.Revision, m.Spec.Digest) != id) {
			return plumbing.ZeroHash, snapshots.ErrNotFound
		}
		return r.review, s.blameCache(err)
	}
	t, err := s.readTip(ctx, r)
	if err != nil && !isCorrupt(err) {
		return plumbing.ZeroHash, err
	}
	if err != nil || t.ID != id || id.IsZero() {
		return plumbing.ZeroHash, snapshots.ErrNotFound
	}
	return t.commit, nil
}

// Delete removes the tags of snapshots; their commits stay in the history of the branch. It skips
// snapshots that are not there. If the newest is among them, it refuses and removes nothing.
func (s *Store) Delete(ctx context.Context, ids ...snapshots.ID) error {
	done, err := s.begin(ctx)
	if err != nil {
		return err
	}
	defer done()
	pushed := false
	return repeat(ctx, func() error {
		updates, err := s.deletions(ctx, ids)
		if err != nil && pushed {
			return again(err)
		}
		if err != nil || len(updates) == 0 {
			return err
		}
		pushed = true
		if err := s.push(ctx, updates, nil); err != nil {
			return fmt.Errorf("delete snapshots: %w", err)
		}
		s.last = refs{} // the names of what is gone take memory
		return nil
	})
}

// deletions returns the updates that remove what is there of the snapshots.
func (s *Store) deletions(ctx context.Context, ids []snapshots.ID) ([]update, error) {
	r, err := s.list(ctx)
	if err != nil {
		return nil, err
	}
	head, err := s.head(ctx, r)
	if err != nil {
		return nil, err
	}
	if !head.IsZero() && slices.Contains(ids, head) {
		return nil, fmt.Errorf("delete snapshot %s: it is the newest", head)
	}
	var updates []update
	for _, id := range slices.Compact(slices.SortedFunc(slices.Values(ids), snapshots.ID.Compare)) {
		if commit, ok := r.tags[id]; ok && id.Revision <= head.Revision {
			updates = append(updates, update{name: s.shelf.tag(id), old: commit})
		}
	}
	return updates, nil
}

// names are the names of the references of a store, made from its branch.
type names string

func (n names) branch() plumbing.ReferenceName {
	return plumbing.NewBranchReferenceName(string(n))
}

func (n names) channel() plumbing.ReferenceName {
	return plumbing.NewBranchReferenceName(string(n) + "-channel")
}

func (n names) journal() plumbing.ReferenceName {
	return plumbing.NewBranchReferenceName(string(n) + "-journal")
}

func (n names) tag(id snapshots.ID) plumbing.ReferenceName {
	return plumbing.ReferenceName(n.folder() + id.String())
}

// folder begins the names of all tags of the store.
func (n names) folder() string { return plumbing.NewTagReferenceName(string(n) + "/").String() }

// refs is a listing of the repository, as far as it concerns a store.
type refs struct {
	branch, channel, journal plumbing.Hash // zero: there is none

	review plumbing.Hash // of the branch that people merge from
	tags   map[snapshots.ID]plumbing.Hash
	all    map[snapshots.ID]plumbing.Hash // tags, with those that were dropped
}

// pick takes the store's references from a listing. Other references, also tags in the store's folder
// whose names are no IDs, belong to people.
func (n names) pick(listing map[string]plumbing.Hash) refs {
	r := refs{
		branch:  listing[n.branch().String()],
		channel: listing[n.channel().String()],
		journal: listing[n.journal().String()],
		tags:    map[snapshots.ID]plumbing.Hash{},
	}
	for name, hash := range listing {
		if short, ok := strings.CutPrefix(name, n.folder()); ok {
			if id, err := snapshots.ParseID(short); err == nil {
				r.tags[id] = hash
			}
		}
	}
	r.all = maps.Clone(r.tags)
	return r
}

// ids returns the IDs of all snapshots, ascending. The head is among them even without its tag: a
// writer may have been stopped before it. Any other tag that is not older than the head was given up,
// or is not on the branch.
func (r refs) ids(head snapshots.ID) []snapshots.ID {
	ids := upTo(slices.Collect(maps.Keys(r.tags)), head)
	if _, tagged := r.tags[head]; !tagged && !head.IsZero() {
		ids = append(ids, head)
	}
	slices.SortFunc(ids, snapshots.ID.Compare)
	return ids
}

// tagged returns the snapshot whose tag is on the tip of the branch, if any.
func (r refs) tagged() (snapshots.ID, bool) {
	var newest snapshots.ID
	for id, hash := range r.tags {
		if hash == r.branch && id.Compare(newest) > 0 {
			newest = id
		}
	}
	return newest, !newest.IsZero()
}

// torn reports whether there is a newer tag than that on the tip of the branch: the branch went back,
// or the listing read the branch before a writer moved it, and the tag after that.
func (r refs) torn() bool {
	head, tagged := r.tagged()
	if !tagged && !r.branch.IsZero() {
		return false // the tip is newer than its tag, or not ours
	}
	for id := range r.tags {
		if id.Compare(head) > 0 {
			return true
		}
	}
	return false
}

// errReviewed is the error if a caller would write to a branch on which people review changes.
var errReviewed = process.WithHint(errors.New("people merge into it, and nothing else writes there"),
	"the compiler publishes to the branch that they merge from: ?branch=STAGING without review=")

// reviewed reports whether people merge what runs from another branch.
func (s *Store) reviewed() bool { return s.options.Review != "" }

// merged returns the snapshot that people merged last: the one whose files, all of them and no others,
// the tip of the branch has. People may merge in any way, and may go back. The pusher never runs what
// is in their commit, but the snapshot that was published. The error wraps [ErrForeign] if the tip
// holds no published snapshot.
func (s *Store) merged(ctx context.Context, r refs) (snapshots.ID, error) {
	where := fmt.Sprintf("branch %s of %s", s.options.Branch, s)
	switch {
	case r.branch.IsZero() && s.merge.commit.IsZero():
		return snapshots.ID{}, nil // nothing was merged yet
	case r.branch.IsZero():
		return snapshots.ID{}, fmt.Errorf("read %s: %w: it is gone, and %s was on it", where, ErrRewound, s.merge.ID)
	}
	id, forwarded := r.tagged()
	if s.merge.commit == r.branch {
		id, forwarded = s.merge.ID, true
	}
	if !forwarded {
		var err error
		if id, err = s.identify(ctx, r); err != nil {
			return snapshots.ID{}, fmt.Errorf("read %s: %w", where, err)
		}
	}
	if id.Compare(s.merge.ID) < 0 {
		s.options.Log.Info("people went back to an older snapshot", "store", s.String(), "snapshot", id.String(), "before", s.merge.ID.String())
	}
	s.merge = tip{Head: sequence.Head{ID: id}, commit: r.branch}
	return id, nil
}

// identify returns which of the published snapshots the tip of the branch holds.
func (s *Store) identify(ctx context.Context, r refs) (snapshots.ID, error) {
	merge, err := s.openAny(ctx, r.branch)
	if err != nil {
		return snapshots.ID{}, err
	}
	foreign := func(err error) error {
		return fmt.Errorf("%w: commit %.12s of %s: %w", ErrForeign, r.branch, who(merge.commit), err)
	}
	snapshot, _, err := merge.snapshot()
	if isCorrupt(err) {
		return snapshots.ID{}, foreign(err)
	}
	if err != nil {
		return snapshots.ID{}, s.blameCache(err)
	}
	commit, err := s.commitOf(ctx, r, snapshot.ID())
	if errors.Is(err, snapshots.ErrNotFound) {
		return snapshots.ID{}, foreign(fmt.Errorf("branch %s holds no %s", s.options.Review, snapshot.ID()))
	}
	if err != nil {
		return snapshots.ID{}, err
	}
	published, err := s.openAny(ctx, commit)
	if err != nil {
		return snapshots.ID{}, err
	}
	if merge.root.Hash != published.root.Hash {
		return snapshots.ID{}, foreign(fmt.Errorf("its files are not those of %s on branch %s", snapshot.ID(), s.options.Review))
	}
	return snapshot.ID(), nil
}

// upTo leaves out snapshots that are newer than the merged one: nobody has reviewed them.
func upTo(ids []snapshots.ID, head snapshots.ID) []snapshots.ID {
	return slices.DeleteFunc(ids, func(id snapshots.ID) bool { return id.Revision >= head.Revision && id != head })
}

// The journal of acts is the history of the channel's branch, which also has what people did by hand.
// Entries about rollouts are in a file of a branch of their own (<branch>-journal): on the channel's branch, a
// pusher without a key that signs would leave a tip that nobody trusts.
const journalFile = "journal.jsonl"

// journalDepth is how many commits of the channel are read for the journal.
const journalDepth = channel.MaxEntries

// acts returns what the commits of a channel say, as far as they are in the cache, the oldest first.
func acts(name string, in storer.EncodedObjectStorer, commit plumbing.Hash) []channel.Entry {
	var out []channel.Entry
	for len(out) < journalDepth {
		c, err := object.GetCommit(in, commit)
		if err != nil {
			break // the rest was not fetched
		}
		out = append(out, actOf(name, c))
		if len(c.ParentHashes) == 0 {
			break
		}
		commit = c.ParentHashes[0]
	}
	slices.Reverse(out)
	return out
}

// actOf returns the act of a channel's commit. A commit that was made by hand has no trailers.
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
