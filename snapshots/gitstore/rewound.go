package gitstore

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/go-git/go-git/v5/plumbing"
	"github.com/go-git/go-git/v5/plumbing/object"
	"github.com/go-git/go-git/v5/plumbing/storer"

	"github.com/hapsnap/hapsnap/snapshots"
	"github.com/hapsnap/hapsnap/snapshots/channel"
)

// verdictTime is how long verdicts on commits are remembered. Only the list of signers changes them.
const verdictTime = 10 * time.Minute

// verdict is the snapshot that the commit of a tag holds: zero if it holds none, or none with an
// accepted signature.
type verdict struct {
	id snapshots.ID
	at time.Time
}

// Remember tells the store what a reader saw of it before, as [channel.View.Seen] says.
func (s *Store) Remember(seen channel.Seen) {
	<-s.turn
	defer func() { s.turn <- struct{}{} }()
	seen = seen.Of(s.String())
	s.seen, s.channel = seen.Head, plumbing.NewHash(seen.Channel)
}

// advance records that t is the newest snapshot. It returns a [channel.RewoundError] if the branch had newer
// ones that nobody gave up: those that were seen there, and those whose tags are on commits that hold them. A
// tag on anything else is ignored, since otherwise everybody who may push could stop the fleet with a tag.
func (s *Store) advance(ctx context.Context, r refs, t tip) error {
	if err := s.dropStrangeTags(ctx, r, t); err != nil {
		return err
	}
	gone := r.newer(t.ID)
	if s.seen != t.ID && s.seen.Revision >= t.ID.Revision && !s.seen.IsZero() && !slices.Contains(gone, s.seen) {
		gone = append(gone, s.seen)
		slices.SortFunc(gone, snapshots.ID.Compare)
	}
	if len(gone) > 0 {
		rewound := &channel.RewoundError{Snapshots: gone, Message: describe(t.ID, gone[len(gone)-1])}
		if accepted, err := s.accepted(ctx, r, rewound); err != nil || !accepted {
			return fmt.Errorf("read branch %s of %s: %w", s.options.Branch, s, cmpErr(err, rewound))
		}
		if s.seen != t.ID {
			s.options.Log.Info("a person accepted that newer snapshots are gone", "store", s.String(), "newest", t.ID.String(), "until", gone[len(gone)-1].String())
		}
	}
	// A commit that cannot be read does not confirm its tag.
	if t.bad == nil {
		s.seen = t.ID
	}
	return nil
}

func describe(head, newest snapshots.ID) string {
	if head.IsZero() {
		return fmt.Sprintf("it is gone, and %s was on it", newest)
	}
	return fmt.Sprintf("it is at %s, and %s was on it", head, newest)
}

func cmpErr(err, other error) error {
	if err != nil {
		return err
	}
	return other
}

// accepted reports whether a person has accepted that this is gone. The person says so in the channel;
// if the channel itself is not the one that was seen, it is added to what is gone.
func (s *Store) accepted(ctx context.Context, r refs, rewound *channel.RewoundError) (bool, error) {
	c, _, err := s.readChannel(ctx, r)
	if also, ok := errors.AsType[*channel.RewoundError](err); ok {
		rewound.Channel = also.Channel
		rewound.Message += "; of its channel, " + also.Message
		return false, nil
	}
	if err != nil {
		return false, errors.Join(rewound, err)
	}
	return c.AcceptsRewind(rewound), nil
}

// dropStrangeTags drops tags that look like snapshots newer than the newest, but are on commits that
// hold something else.
func (s *Store) dropStrangeTags(ctx context.Context, r refs, t tip) error {
	for _, id := range r.newer(t.ID) {
		holds := t.ID
		if commit := r.tags[id]; commit != r.branch || t.bad != nil {
			var err error
			if holds, err = s.holds(ctx, commit); err != nil {
				return fmt.Errorf("read tag %s of %s: %w", s.shelf.tag(id).Short(), s, err)
			}
		}
		if holds == id {
			continue
		}
		if !s.strange[id] {
			s.strange[id] = true
			s.options.Log.Warn("ignoring a tag that has the name of a snapshot and is on another commit", "store", s.String(), "tag", s.shelf.tag(id).Short())
		}
		delete(r.tags, id)
	}
	return nil
}

// holds returns the snapshot that a commit holds, zero if it holds none that can be believed.
func (s *Store) holds(ctx context.Context, commit plumbing.Hash) (snapshots.ID, error) {
	if v, ok := s.verdicts[commit]; ok && time.Since(v.at) < verdictTime {
		return v.id, nil
	}
	snapshot, _, err := s.load(ctx, commit)
	if err != nil && !isCorrupt(err) && !errors.Is(err, snapshots.ErrUntrusted) {
		return snapshots.ID{}, err
	}
	if err != nil {
		snapshot = snapshots.Snapshot{}
	}
	if len(s.verdicts) >= maxVerdicts {
		clear(s.verdicts)
	}
	s.verdicts[commit] = verdict{at: time.Now()}
	if err == nil {
		s.verdicts[commit] = verdict{snapshot.ID(), time.Now()}
	}
	return s.verdicts[commit].id, nil
}

// maxVerdicts bounds how many verdicts are remembered.
const maxVerdicts = 10_000

// newer returns the snapshots other than head whose tags say that they are not older than head.
func (r refs) newer(head snapshots.ID) []snapshots.ID {
	var out []snapshots.ID
	for _, id := range slices.SortedFunc(maps.Keys(r.tags), snapshots.ID.Compare) {
		if id != head && id.Revision >= head.Revision {
			out = append(out, id)
		}
	}
	return out
}

// The depths to which the history of the channel is fetched to find the commit that was believed last.
// Commits of the channel are small, and few are made between two reads.
var channelDepths = []int{32, 1024, 8192}

// follows returns an error unless the commit of a channel comes after the one that was believed, or the
// channel says that this is accepted.
func (s *Store) follows(ctx context.Context, commit reader, c channel.Channel) error {
	before := s.channel
	if before.IsZero() || before == commit.commit.Hash || slices.Contains(commit.commit.ParentHashes, before) {
		return nil
	}
	rewound := &channel.RewoundError{
		Channel: before.String(),
		Message: fmt.Sprintf("it is at commit %.12s, which does not come after %.12s", commit.commit.Hash, before),
	}
	if c.AcceptsRewind(rewound) {
		s.options.Log.Info("a person accepted that the channel was set back", "store", s.String(), "commit", commit.commit.Hash.String(), "before", before.String())
		return nil
	}
	if s.unrelated == [2]plumbing.Hash{before, commit.commit.Hash} {
		return rewound
	}
	for _, depth := range channelDepths {
		if err := s.cache.fetch(ctx, s.remote, commit.commit.Hash, depth); err != nil {
			return err
		}
		found, whole := descends(s.cache.storage, commit.commit.Hash, before)
		if found {
			return nil
		}
		if whole {
			break
		}
	}
	s.unrelated = [2]plumbing.Hash{before, commit.commit.Hash}
	return rewound
}

// descends reports whether a commit comes after another, judged by the history in the cache, and
// whether that history is complete.
func descends(in storer.EncodedObjectStorer, commit, before plumbing.Hash) (found, whole bool) {
	known := map[plumbing.Hash]bool{commit: true}
	next := []plumbing.Hash{commit}
	whole = true
	for len(next) > 0 {
		c, err := object.GetCommit(in, next[0])
		next = next[1:]
		if err != nil {
			whole = false
			continue
		}
		for _, parent := range c.ParentHashes {
			if parent == before {
				return true, whole
			}
			if !known[parent] {
				known[parent] = true
				next = append(next, parent)
			}
		}
	}
	return false, whole
}
