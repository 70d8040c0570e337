package gitstore

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/hapsnap/hapsnap/snapshots"
	"github.com/hapsnap/hapsnap/snapshots/channel"
	"github.com/hapsnap/hapsnap/snapshots/storetest"
)

// wantHead checks what a store finds and remembers.
func wantHead(t *testing.T, s *Store, want snapshots.ID) {
	t.Helper()
	v, err := s.View(t.Context())
	if err != nil || v.Head() != want || v.Seen.Head != want {
		t.Errorf("the newest is %s, seen %s, %v; want %s", v.Head(), v.Seen.Head, err, want)
	}
}

// A tag that is only named like a snapshot does not count. A user who may push one cannot stop anything with
// it, neither while it exists nor when it is gone.
func TestTagsThatAreOnSomethingElse(t *testing.T) {
	t.Parallel()
	for name, on := range map[string]func(r repository, first snapshots.ID) string{
		"on the tip":            func(repository, snapshots.ID) string { return "edge" },
		"on an older snapshot":  func(_ repository, first snapshots.ID) string { return "refs/tags/edge/" + first.String() },
		"on some other commit":  func(r repository, _ snapshots.ID) string { return r.commitFile(t, "", "README.md", "x") },
		"on a file":             func(repository, snapshots.ID) string { return "edge:haproxy.cfg" },
		"on a folder":           func(repository, snapshots.ID) string { return "edge:maps" },
		"on a damaged snapshot": func(r repository, _ snapshots.ID) string { return r.commitFile(t, "edge", "haproxy.cfg", "global\n") },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newRepository(t)
			s := r.open(t)
			first := publish(t, s, storetest.Draft("a"))
			last := publish(t, s, storetest.Draft("b"))
			reader, fresh := r.open(t), r.open(t)
			wantHead(t, reader, last)
			tags := []string{"refs/tags/edge/" + id(888888, "f").String(), "refs/tags/edge/" + id(2, "f").String(), "refs/tags/edge/" + id(3, "f").String()}
			for _, tag := range tags {
				r.git(t, "update-ref", tag, r.git(t, "rev-parse", on(r, first)))
			}
			for _, s := range []*Store{s, reader, fresh} {
				wantHead(t, s, last)
			}
			next := publish(t, s, storetest.Draft("c"))
			if next.Revision != 3 {
				t.Errorf("published as %s", next)
			}
			for _, tag := range tags {
				r.git(t, "update-ref", "-d", tag)
			}
			for _, s := range []*Store{s, reader, fresh} {
				wantHead(t, s, next)
			}
		})
	}
}

// accept accepts the loss that an error reports, as a person does.
func accept(t *testing.T, person *Store, err error) {
	t.Helper()
	rewound, ok := errors.AsType[*channel.RewoundError](err)
	if !ok {
		t.Fatalf("not rewound: %v", err)
	}
	err = person.UpdateChannel(t.Context(), "accept", time.Unix(1e9, 0), func(c *channel.Channel) error {
		r := channel.AcceptedRewind{Snapshots: rewound.Snapshots, By: "ann"}
		if rewound.Channel != "" {
			r.Channels = []string{rewound.Channel}
		}
		*c = c.RewindAccepted(r)
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}

// A reader that has seen what is gone holds a rewind, also after a restart, until a person accepts it. Then
// readers and writers go on, and another rewind is held again.
func TestRewindsAreAccepted(t *testing.T) {
	t.Parallel()
	for name, keepTags := range map[string]bool{"with its tags": false, "but for its tags": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newRepository(t)
			writer, reader := r.open(t), r.open(t)
			first := publish(t, writer, storetest.Draft("a"))
			second := publish(t, writer, storetest.Draft("b"))
			third := publish(t, writer, storetest.Draft("c"))
			wantHead(t, reader, third)
			v, err := reader.View(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			restarted := r.open(t)
			restarted.Remember(v.Seen)
			elsewhere := r.open(t)
			elsewhere.Remember(channel.Seen{Store: "git+file:///srv/other.git?branch=edge", Head: id(99, "f"), Channel: strings.Repeat("1", 40)})

			back := func(to snapshots.ID, gone ...snapshots.ID) {
				r.git(t, "update-ref", "refs/heads/edge", "refs/tags/edge/"+to.String())
				for _, id := range gone {
					if !keepTags {
						r.git(t, "update-ref", "-d", "refs/tags/edge/"+id.String())
					}
				}
			}
			back(first, second, third)
			stores := []*Store{writer, reader, restarted}
			for _, s := range stores {
				if v, err := s.View(t.Context()); !errors.Is(err, ErrRewound) || !strings.Contains(err.Error(), third.String()) {
					t.Fatalf("view %v, %v", v.IDs, err)
				}
			}
			if _, err := elsewhere.View(t.Context()); errors.Is(err, ErrRewound) != keepTags {
				t.Errorf("what was seen of another store: %v", err)
			}
			_, err = reader.View(t.Context())
			accept(t, r.open(t), err)
			for _, s := range append(stores, r.open(t)) {
				wantHead(t, s, first)
			}
			// Publishing continues, with a revision and content that existed before.
			again := publish(t, writer, storetest.Draft("b"))
			if again != second {
				t.Errorf("published as %s", again)
			}
			other := publish(t, writer, storetest.Draft("d"))
			for _, s := range append(stores, r.open(t)) {
				wantHead(t, s, other)
				if got, err := s.Get(t.Context(), again); err != nil || got.Manifest.Spec.Parent != first {
					t.Errorf("get %s: parent %s, %v", again, got.Manifest.Spec.Parent, err)
				}
			}
			// The acceptance was only for that rewind.
			back(first, again, other)
			for _, s := range stores {
				if v, err := s.View(t.Context()); !errors.Is(err, ErrRewound) {
					t.Errorf("set back once more: %v, %v", v.IDs, err)
				}
			}
		})
	}
}

// A reader that has accepted a commit of the channel accepts only later commits.
func TestChannelsThatWentBackAreHeld(t *testing.T) {
	t.Parallel()
	r := newRepository(t)
	s := r.open(t)
	publish(t, s, storetest.Draft("a"))
	approve := func(s *Store, n uint64) {
		t.Helper()
		err := s.UpdateChannel(t.Context(), "approve", time.Unix(1e9, 0), func(c *channel.Channel) error {
			*c = c.Approve(id(n, "a"))
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	approve(s, 1)
	old := r.git(t, "rev-parse", "edge-channel")
	approve(s, 2)
	v, err := r.open(t).View(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	believed := r.git(t, "rev-parse", "edge-channel")
	if v.Seen.Channel != believed {
		t.Fatalf("seen %+v", v.Seen)
	}
	set := func(commit string) { r.git(t, "update-ref", "refs/heads/edge-channel", commit) }
	restart := func() *Store {
		s := r.open(t)
		s.Remember(v.Seen)
		return s
	}
	same := r.git(t, "cat-file", "blob", believed+":"+channelFile)
	for name, commit := range map[string]string{
		"set back":                  old,
		"removed":                   strings.Repeat("0", 40),
		"another history":           r.commitFile(t, "", channelFile, same),
		"another way from the same": r.commitFile(t, old, channelFile, same+"\n"),
	} {
		set(commit)
		held := restart()
		for range 2 {
			if _, err := held.View(t.Context()); !errors.Is(err, ErrRewound) {
				t.Errorf("%s: %v", name, err)
			}
		}
		err := held.UpdateChannel(t.Context(), "x", time.Unix(1e9, 0), func(c *channel.Channel) error {
			*c = c.Approve(id(9, "a"))
			return nil
		})
		if !errors.Is(err, ErrRewound) {
			t.Errorf("%s: written: %v", name, err)
		}
		if ids, err := held.IDs(t.Context()); err != nil || len(ids) != 1 {
			t.Errorf("%s: the snapshots are %v, %v", name, ids, err)
		}
		_, err = held.View(t.Context())
		accept(t, r.open(t), err)
		for _, s := range []*Store{held, restart()} {
			if v, err := s.View(t.Context()); err != nil || v.Seen.Channel != r.git(t, "rev-parse", "edge-channel") {
				t.Errorf("%s: accepted, and seen is %+v, %v", name, v.Seen, err)
			}
		}
		// The acceptance does not apply to the next rewind.
		set(believed)
		if _, err := held.View(t.Context()); !errors.Is(err, ErrRewound) {
			t.Errorf("%s: put back after it was accepted: %v", name, err)
		}
		if _, err := restart().View(t.Context()); err != nil {
			t.Errorf("%s: put back: %v", name, err)
		}
	}
}

// People may change the channel while no reader looks, also by merges.
func TestChannelsThatMovedOnAreBelieved(t *testing.T) {
	t.Parallel()
	r := newRepository(t)
	s := r.open(t)
	approve := func(n uint64) {
		t.Helper()
		err := s.UpdateChannel(t.Context(), "approve", time.Unix(1e9, 0), func(c *channel.Channel) error {
			*c = c.Approve(id(n, "a"))
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	approve(1)
	v, err := s.View(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	first := v.Seen.Channel
	reader := r.open(t)
	m := meddle(reader)
	reader.Remember(v.Seen)
	for n := range uint64(3) {
		approve(n + 2)
	}
	if _, err := reader.View(t.Context()); err != nil || m.fetches != 2 {
		t.Errorf("three commits on: %v, after %d fetches", err, m.fetches)
	}
	approve(5)
	if _, err := reader.View(t.Context()); err != nil || m.fetches != 3 {
		t.Errorf("one commit on: %v, after %d fetches", err, m.fetches)
	}
	// A merge of a branch that began much earlier.
	side := r.commitFile(t, first, "README.md", "x")
	for range 40 {
		side = r.commitFile(t, side, "README.md", side)
	}
	tree := r.git(t, "rev-parse", "edge-channel^{tree}")
	merge := r.git(t, "commit-tree", tree, "-m", "merge", "-p", side, "-p", "edge-channel")
	approve(6)
	merge = r.git(t, "commit-tree", tree, "-m", "merge", "-p", merge, "-p", "edge-channel")
	r.git(t, "update-ref", "refs/heads/edge-channel", merge)
	if _, err := reader.View(t.Context()); err != nil {
		t.Errorf("merged: %v", err)
	}
	late := r.open(t)
	late.Remember(v.Seen)
	if _, err := late.View(t.Context()); err != nil {
		t.Errorf("merged, to one who was away: %v", err)
	}
}
