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

	"github.com/hapsnap/hapsnap/internal/process"
	"github.com/hapsnap/hapsnap/snapshots"
	"github.com/hapsnap/hapsnap/snapshots/channel"
	"github.com/hapsnap/hapsnap/snapshots/stores/sequence"
)

// Publish commits the draft as the newest snapshot. A draft with the content of the newest is not
// committed: Publish returns the ID of the newest, and false. A newest snapshot that has its tag and is
// corrupt is followed by the next revision.
//
// Publish reads the repository again and tries once more when another writer was faster and when a push
// fails, so that a lost answer is no failure. After an error it is not known whether the snapshot is
// published; publishing the same draft again finds out.
func (s *Store) Publish(ctx context.Context, d snapshots.Draft) (id snapshots.ID, published bool, err error) {
	if err := sequence.CheckAlone(d); err != nil {
		return snapshots.ID{}, false, err
	}
	if s.reviewed() {
		return snapshots.ID{}, false, fmt.Errorf("publish to %s: %w", s, errReviewed)
	}
	done, err := s.begin(ctx)
	if err != nil {
		return snapshots.ID{}, false, err
	}
	defer done()
	tried := map[snapshots.ID]plumbing.Hash{}
	err = repeat(ctx, func() error {
		id, published, err = s.publish(ctx, d, tried)
		if len(tried) > 0 {
			return again(err)
		}
		return err
	})
	if err != nil {
		return snapshots.ID{}, false, fmt.Errorf("publish snapshot: %w", err)
	}
	return id, published, nil
}

// publish makes one attempt. It adds the commit that it pushes to those that were tried before, since
// any of them may turn out to have arrived.
func (s *Store) publish(ctx context.Context, d snapshots.Draft, tried map[snapshots.ID]plumbing.Hash) (snapshots.ID, bool, error) {
	r, parent, err := s.newest(ctx, len(tried) > 0)
	if err != nil {
		return snapshots.ID{}, false, err
	}
	if errors.Is(parent.bad, snapshots.ErrUntrusted) {
		return snapshots.ID{}, false, parent.bad
	}
	if parent.bad != nil {
		s.options.Log.Warn("the newest snapshot is corrupt, publishing the next one on top of it", "store", s.String(), "snapshot", parent.ID.String(), "err", parent.bad)
	}
	if parent.commit.IsZero() && !s.named && r.channel.IsZero() && len(s.branches) > 0 {
		return snapshots.ID{}, false, process.WithHint(
			fmt.Errorf("make branch %s of %s: %w", s.options.Branch, s, errOthers), "the URL names no branch: add ?branch=NAME, also for a new one; "+s.branchesAre())
	}
	if id, ok := arrived(r, tried); ok {
		return id, true, s.addTag(ctx, r, parent)
	}
	next, changed, err := sequence.Next(parent.Head, d)
	if err != nil {
		return snapshots.ID{}, false, err
	}
	if !changed {
		return parent.ID, false, s.addTag(ctx, r, parent)
	}
	made, pack, err := s.commit(parent, next, d.Time)
	if err != nil {
		return snapshots.ID{}, false, err
	}
	tried[made.ID] = made.commit
	if err := s.push(ctx, s.updates(r, parent, made), pack); err != nil {
		return snapshots.ID{}, false, fmt.Errorf("push %s: %w", made.ID, err)
	}
	s.tip, s.seen = made, made.ID
	if made.ID.Revision%packEvery == 0 {
		if err := s.remote.Pack(ctx); err != nil { // it is published nevertheless
			s.options.Log.Info("cannot pack the tags of the repository, without which each publish takes longer than the one before", "store", s.String(), "err", err)
		}
	}
	return made.ID, true, nil
}

// newest returns the newest snapshot, verified, and the references that a writer needs: the branches of the store, and
// the tags that are not older than it. It lists all references if the repository cannot list some, if the caller wants
// all, and if anything is not as the last writer left it: only a listing of all can tell what is missing.
func (s *Store) newest(ctx context.Context, all bool) (refs, tip, error) {
	if !all {
		if r, t, ok := s.glance(ctx); ok {
			return r, t, nil
		}
	}
	r, err := s.list(ctx)
	if err != nil {
		return refs{}, tip{}, err
	}
	t, err := s.verifiedTip(ctx, r)
	return r, t, err
}

// glance is newest for a branch that is at a snapshot, at the one that was seen last or at a newer one, without a tag
// of one that is newer still. It reports false for any other.
func (s *Store) glance(ctx context.Context) (refs, tip, bool) {
	since := s.tip.ID
	if since.IsZero() { // the first look says from where on tags matter
		t, ok := s.peek(ctx)
		if !ok {
			return refs{}, tip{}, false
		}
		since = t.ID
	}
	found, ok := s.remote.Some(ctx, append(notOlder(s.names.folder(), since.Revision), s.names.branch().String())...)
	if !ok {
		return refs{}, tip{}, false
	}
	r := s.names.pick(found)
	t, err := s.readTip(ctx, r)
	if err != nil || t.bad != nil || t.ID.IsZero() || t.ID.Revision < since.Revision || s.advance(ctx, r, t) != nil {
		return refs{}, tip{}, false
	}
	return r, t, true
}

// peek returns the tip of the branch, if it holds a snapshot.
func (s *Store) peek(ctx context.Context) (tip, bool) {
	found, ok := s.remote.Some(ctx, s.names.branch().String())
	if !ok {
		return tip{}, false
	}
	t, err := s.readTip(ctx, s.names.pick(found))
	return t, err == nil && t.bad == nil && !t.ID.IsZero()
}

// errOthers is the error if a default branch would be created in a repository that has other branches.
var errOthers = errors.New("the repository is not empty, and has other branches")

// arrived returns the snapshot among those tried that the repository has: at the
// tip, or under its tag if others were put on top of it.
func arrived(r refs, tried map[snapshots.ID]plumbing.Hash) (snapshots.ID, bool) {
	for id, commit := range tried {
		if r.branch == commit || r.tags[id] == commit {
			return id, true
		}
	}
	return snapshots.ID{}, false
}

// commit makes the commit of a snapshot, and a pack of what it adds.
func (s *Store) commit(parent tip, next snapshots.Snapshot, made time.Time) (tip, []byte, error) {
	files, err := s.options.Deliver.Files(next, s.options.Key)
	if err != nil {
		return tip{}, nil, err
	}
	head := next.Manifest
	if len(files) == 0 { // what is delivered into a cluster has the whole manifest
		head, files = next.Manifest.Split()
	}
	manifest, err := head.Marshal()
	if err != nil {
		return tip{}, nil, fmt.Errorf("encode manifest: %w", err)
	}
	files = append(files, snapshots.File{Path: snapshots.ManifestFile, Content: manifest})
	files = append(files, next.Files...)
	b := newBuilder(parent.files)
	tree, all, err := b.files(files)
	if err != nil {
		return tip{}, nil, err
	}
	message := snapshotMessage(s.options.Name, next.Manifest)
	author := s.author(made)
	if all := persons(next.Manifest.Provenance.Author); len(all) > 0 {
		author = s.actor(channel.Act{Author: all[0]}, made)
	}
	commit, err := b.commitBy(author, tree, parent.commit, s.author(made), message, s.sign)
	if err != nil {
		return tip{}, nil, err
	}
	pack, err := b.pack()
	return tip{Head: sequence.HeadOf(next), commit: commit, files: all}, pack, err
}

// author says who commits, and when. Git knows no time before 1970.
func (s *Store) author(t time.Time) object.Signature {
	if t.Unix() < 0 {
		t = time.Unix(0, 0)
	}
	return object.Signature{Name: s.options.Author.Name, Email: s.options.Author.Email, When: t.UTC()}
}

// persons returns those whom a provenance names as git does, such as "Ann <ann@example.com>, Bob
// <bob@example.com>". A name without an address is no author that git could have.
func persons(authors string) []channel.Person {
	var out []channel.Person
	for part := range strings.SplitSeq(authors, ">") {
		name, email, ok := strings.Cut(part, "<")
		name, email = strings.Trim(name, ", "), strings.TrimSpace(email)
		if ok && name != "" && email != "" {
			out = append(out, channel.Person{Name: name, Email: email})
		}
	}
	return out
}

// actor is the author of an act: the person, or else the store's own.
func (s *Store) actor(act channel.Act, t time.Time) object.Signature {
	out, clean := s.author(t), strings.NewReplacer("<", "", ">", "", "\n", " ", "\x00", "")
	if name, email := strings.TrimSpace(clean.Replace(act.Author.Name)), strings.TrimSpace(clean.Replace(act.Author.Email)); name != "" && email != "" {
		out.Name, out.Email = name, email
	}
	return out
}

// updates moves the branch, then adds the tag. Before that it adds the tag of the parent if the writer
// before was stopped before it could.
func (s *Store) updates(r refs, parent, made tip) []update {
	updates := []update{{s.names.branch(), parent.commit, made.commit}}
	if u, ok := s.missingTag(r, parent); ok {
		updates = append(updates, u)
	}
	// The tag may exist already: from a branch that was set back, or from another program.
	return append(updates, update{name: s.names.tag(made.ID), old: r.all[made.ID], new: made.commit})
}

func (s *Store) missingTag(r refs, t tip) (update, bool) {
	_, there := r.all[t.ID]
	return update{name: s.names.tag(t.ID), new: t.commit}, !there && !t.ID.IsZero()
}

// addTag adds the tag of the tip if it is not there.
func (s *Store) addTag(ctx context.Context, r refs, t tip) error {
	u, ok := s.missingTag(r, t)
	if !ok {
		return nil
	}
	if err := s.push(ctx, []update{u}, emptyPack); err != nil {
		return fmt.Errorf("tag %s: %w", t.ID, err)
	}
	s.options.Log.Info("added a missing tag", "store", s.String(), "snapshot", t.ID.String())
	return nil
}

// push changes references. After a failure it is worth reading the repository again.
func (s *Store) push(ctx context.Context, updates []update, pack []byte) error {
	if err := s.at("before push"); err != nil {
		return err
	}
	if err := s.remote.Push(ctx, updates, pack); err != nil {
		return again(err)
	}
	return s.at("after push")
}

// channelFile is the only file of the channel's branch that the store writes.
const channelFile = "channel.yaml"

// UpdateChannel lets edit change the channel, and commits the result. When another writer was faster or
// a push fails, it reads the channel and calls edit again: edit may be called several times, also after
// its first result arrived and the answer was lost. UpdateChannel returns an error of edit as it is. It commits an
// unchanged channel if that lacks the signature of the store's key.
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
		data, act, changed, err := sequence.EditBy(old, edit)
		if err == nil && !changed {
			changed, err = s.lacksSignature(r.channel)
		}
		if err != nil || !changed {
			return err
		}
		pushed = true
		// The file is committed on top of the tip, and the files beside it are kept, but for a manifest: with one, the
		// commit could be a snapshot, which somebody who has no key would have us sign.
		message := channelMessage(s.options.Name, subject, act)
		author := s.actor(act, now)
		b := newBuilder(nil)
		hash, err := b.blob(data)
		if err != nil {
			return fmt.Errorf("encode channel: %w", err)
		}
		entries := slices.DeleteFunc(slices.Clone(beside), func(e object.TreeEntry) bool {
			return e.Name == channelFile || e.Name == snapshots.ManifestFile
		})
		tree, err := b.tree(append(entries, object.TreeEntry{Name: channelFile, Mode: filemode.Regular, Hash: hash}))
		if err != nil {
			return fmt.Errorf("encode channel: %w", err)
		}
		commit, err := b.commitBy(author, tree, r.channel, s.author(now), message, s.sign)
		if err != nil {
			return err
		}
		pack, err := b.pack()
		if err != nil {
			return err
		}
		updates := []update{{s.names.channel(), r.channel, commit}}
		if err := s.push(ctx, updates, pack); err != nil {
			return fmt.Errorf("push %s: %w", s.names.channel().Short(), err)
		}
		s.channel = commit
		return nil
	})
}

// readChannel returns the channel, and the other files at the root of its branch. A branch that never existed
// is the empty channel. A branch without the file, or one that is gone or went back, is an error.
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
	if errors.Is(err, snapshots.ErrUntrusted) {
		err = process.WithHint(err, "look at what it says, with git show and without a list of signers; if that is meant, sign it with pusher sign --signing-key FILE")
	}
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

// Record commits entries about rollouts to the branch of the journal.
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
		b := newBuilder(nil)
		hash, err := b.blob(journal)
		if err != nil {
			return err
		}
		tree, err := b.tree([]object.TreeEntry{{Name: journalFile, Mode: filemode.Regular, Hash: hash}})
		if err != nil {
			return err
		}
		commit, err := b.commit(tree, r.journal, s.author(now), message(printable(s.options.Name+" journal: "+entries[len(entries)-1].Text), nil), s.sign)
		if err != nil {
			return err
		}
		pack, err := b.pack()
		if err != nil {
			return err
		}
		return s.push(ctx, []update{{s.names.journal(), r.journal, commit}}, pack)
	})
	if err != nil {
		return fmt.Errorf("write the journal of %s: %w", s, err)
	}
	return nil
}
