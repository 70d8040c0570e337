package gitstore

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/go-git/go-git/v5/plumbing/transport"

	"github.com/hapsnap/hapsnap/internal/process"
	"github.com/hapsnap/hapsnap/snapshots"
	"github.com/hapsnap/hapsnap/snapshots/channel"
	"github.com/hapsnap/hapsnap/snapshots/storetest"
)

// wantHeld checks that every call reports why the branch is held, and that none changes it.
func wantHeld(t *testing.T, r repository, want error, stores ...*Store) {
	t.Helper()
	before := r.git(t, "for-each-ref")
	for _, s := range stores {
		if v, err := s.View(t.Context()); !errors.Is(err, want) {
			t.Errorf("view: %v, %v", v.IDs, err)
		}
		for _, backend := range []string{"a", "b", "new"} {
			if id, published, err := s.Publish(t.Context(), storetest.Draft(backend)); !errors.Is(err, want) || published {
				t.Errorf("publish %s: %s, published %v, %v", backend, id, published, err)
			}
		}
		if err := s.Delete(t.Context(), id(1, "a")); !errors.Is(err, want) {
			t.Errorf("delete: %v", err)
		}
	}
	if after := r.git(t, "for-each-ref"); after != before {
		t.Errorf("the repository was\n%s\nand is\n%s", before, after)
	}
}

func TestForeignCommitsAreHeld(t *testing.T) {
	t.Parallel()
	for name, change := range map[string]struct{ on, path, content string }{
		"a file added":     {"edge", "README.md", "hello"},
		"a folder added":   {"edge", "docs/a.md", "hello"},
		"a file edited":    {"edge", "haproxy.cfg", "global\n"},
		"a file removed":   {"edge", "maps/host.map", removed},
		"manifest removed": {"edge", "snapshot.yaml", removed},
		"manifest edited":  {"edge", "snapshot.yaml", "kind: Snapshot\n"},
		"other history":    {"", "main.go", "package main"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newRepository(t)
			s := r.open(t)
			publish(t, s, storetest.Draft("a"))
			last := publish(t, s, storetest.Draft("b"))
			good := r.git(t, "rev-parse", "edge")
			r.git(t, "update-ref", "refs/heads/edge", r.commitFile(t, change.on, change.path, change.content))
			wantHeld(t, r, ErrForeign, s, r.open(t))
			// What was published can still be read, and runs.
			if _, err := s.Get(t.Context(), last); err != nil {
				t.Errorf("get: %v", err)
			}
			// A person removes the commit.
			r.git(t, "update-ref", "refs/heads/edge", good)
			if id := publish(t, s, storetest.Draft("c")); id.Revision != 3 {
				t.Errorf("published %s", id)
			}
		})
	}
}

func TestRewoundBranchesAreHeld(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		rewind func(t *testing.T, r repository, ids []snapshots.ID)
		seen   bool // only a store that has seen the former branch can know
	}{
		"set back": {rewind: func(t *testing.T, r repository, ids []snapshots.ID) {
			t.Helper()
			r.git(t, "update-ref", "refs/heads/edge", "refs/tags/edge/"+ids[0].String())
		}},
		"removed": {rewind: func(t *testing.T, r repository, _ []snapshots.ID) {
			t.Helper()
			r.git(t, "update-ref", "-d", "refs/heads/edge")
		}},
		"set back with its tags": {seen: true, rewind: func(t *testing.T, r repository, ids []snapshots.ID) {
			t.Helper()
			r.git(t, "update-ref", "refs/heads/edge", "refs/tags/edge/"+ids[0].String())
			r.git(t, "update-ref", "-d", "refs/tags/edge/"+ids[1].String())
		}},
		"removed with its tags": {seen: true, rewind: func(t *testing.T, r repository, ids []snapshots.ID) {
			t.Helper()
			for _, ref := range []string{"heads/edge", "tags/edge/" + ids[0].String(), "tags/edge/" + ids[1].String()} {
				r.git(t, "update-ref", "-d", "refs/"+ref)
			}
		}},
		"replaced": {seen: true, rewind: func(t *testing.T, r repository, ids []snapshots.ID) {
			t.Helper()
			r.git(t, "update-ref", "refs/heads/edge", "refs/tags/edge/"+ids[0].String())
			r.git(t, "update-ref", "-d", "refs/tags/edge/"+ids[1].String())
			publish(t, r.open(t), storetest.Draft("other"))
		}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newRepository(t)
			s := r.open(t)
			ids := []snapshots.ID{publish(t, s, storetest.Draft("a")), publish(t, s, storetest.Draft("b"))}
			test.rewind(t, r, ids)
			stores := []*Store{s}
			if !test.seen {
				stores = append(stores, r.open(t))
			}
			wantHeld(t, r, ErrRewound, stores...)
		})
	}
}

// A file that became a link or executable is not the published file, even with the same content.
func TestForeignModes(t *testing.T) {
	t.Parallel()
	for _, mode := range []string{"120000", "100755"} {
		r := newRepository(t)
		s := r.open(t)
		publish(t, s, storetest.Draft("a"))
		tree := strings.Replace(r.git(t, "ls-tree", "edge"), "100644", mode, 1) + "\n"
		commit := r.git(t, "commit-tree", "-p", "edge", "-m", "by hand", runGit(t, r.path, []byte(tree), "mktree"))
		r.git(t, "update-ref", "refs/heads/edge", commit)
		wantHeld(t, r, ErrForeign, s, r.open(t))
	}
}

// A commit of a few kilobytes whose folders contain themselves many times is refused before it is unfolded.
func TestFoldersThatUnfold(t *testing.T) {
	t.Parallel()
	r := newRepository(t)
	s := r.open(t)
	publish(t, s, storetest.Draft("a"))
	tree := r.git(t, "rev-parse", "edge:maps")
	for range 40 {
		tree = runGit(t, r.path, fmt.Appendf(nil, "040000 tree %s\ta\n040000 tree %s\tb\n", tree, tree), "mktree")
	}
	root := r.git(t, "ls-tree", "edge") + fmt.Sprintf("\n040000 tree %s\tzzz\n", tree)
	commit := r.git(t, "commit-tree", "-p", "edge", "-m", "by hand", runGit(t, r.path, []byte(root), "mktree"))
	r.git(t, "update-ref", "refs/heads/edge", commit)
	wantHeld(t, r, ErrForeign, s, r.open(t))
}

// A tag on another snapshot than its name says is not trusted.
func TestMovedTags(t *testing.T) {
	t.Parallel()
	r := newRepository(t)
	s := r.open(t)
	one, two, three := publish(t, s, storetest.Draft("a")), publish(t, s, storetest.Draft("b")), publish(t, s, storetest.Draft("c"))
	r.git(t, "update-ref", "refs/tags/edge/"+one.String(), "refs/tags/edge/"+two.String())
	r.git(t, "tag", "--force", "-m", "annotated", "edge/"+two.String(), "edge/"+two.String())
	for _, s := range []*Store{s, r.open(t)} {
		for _, id := range []snapshots.ID{one, two} {
			if _, err := s.View(t.Context()); err != nil {
				t.Fatal(err)
			}
			if _, err := s.Get(t.Context(), id); !errors.Is(err, snapshots.ErrCorrupt) {
				t.Errorf("get %s: %v", id, err)
			}
			if _, err := s.Manifest(t.Context(), id); !errors.Is(err, snapshots.ErrCorrupt) {
				t.Errorf("manifest of %s: %v", id, err)
			}
		}
		if _, err := s.Get(t.Context(), three); err != nil {
			t.Error(err)
		}
	}
	// On the tip, such a tag names a snapshot that does not exist.
	r.git(t, "update-ref", "refs/tags/edge/"+id(9, "f").String(), "edge")
	if id := publish(t, r.open(t), storetest.Draft("d")); id.Revision != 4 {
		t.Errorf("published as %s", id)
	}
}

func TestChannelOfPeople(t *testing.T) {
	t.Parallel()
	r := newRepository(t)
	s := r.open(t)
	publish(t, s, storetest.Draft("a"))
	approve := func(n uint64) error {
		return s.UpdateChannel(t.Context(), "approve", time.Unix(1e9, 0), func(c *channel.Channel) error {
			*c = c.Approve(id(n, "a"))
			return nil
		})
	}
	if err := approve(1); err != nil {
		t.Fatal(err)
	}
	// Files of people beside the channel stay.
	set := func(commit string) { r.git(t, "update-ref", "refs/heads/edge-channel", commit) }
	set(r.commitFile(t, "edge-channel", "README.md", "how to pin"))
	set(r.commitFile(t, "edge-channel", ".github/CODEOWNERS", "* @ops"))
	if err := approve(2); err != nil {
		t.Fatal(err)
	}
	if got := r.git(t, "ls-tree", "-r", "--name-only", "edge-channel"); got != ".github/CODEOWNERS\nREADME.md\nchannel.yaml" {
		t.Errorf("the branch holds %q", got)
	}
	if got := r.git(t, "fsck", "--strict"); got != "" {
		t.Errorf("git fsck: %s", got)
	}
	good := r.git(t, "rev-parse", "edge-channel")
	for _, test := range []struct {
		commit string
		want   error
	}{
		{r.commitFile(t, "edge-channel", "channel.yaml", removed), errNoFile},
		{strings.Repeat("0", 40), ErrRewound}, // the branch is removed
	} {
		set(test.commit)
		if v, err := s.View(t.Context()); !errors.Is(err, test.want) {
			t.Errorf("without %s the channel is read as %+v, %v", good, v.Channel, err)
		}
		if err := approve(3); !errors.Is(err, test.want) {
			t.Errorf("without %s the channel is written: %v", good, err)
		}
		set(good)
	}
	if err := approve(3); err != nil {
		t.Error(err)
	}
}

func TestNoRepository(t *testing.T) {
	t.Parallel()
	r := newRepository(t)
	s := r.open(t, func(o *Options) { o.URL = r.path + "-typo" })
	_, err := s.View(t.Context())
	if !errors.Is(err, ErrNoRepository) {
		t.Errorf("view: %v", err)
	}
	if hint := process.Hint(err); hint != "git init --bare --initial-branch=edge "+r.path+"-typo" {
		t.Errorf("hint: %q", hint)
	}
	// The store does not wait: the repository will not appear by itself.
	if _, _, err := s.Publish(t.Context(), storetest.Draft("a")); !errors.Is(err, ErrNoRepository) || strings.Contains(err.Error(), "tries") {
		t.Errorf("publish: %v", err)
	}
}

// A repository that cannot be read is not taken for one that is not there, although git says that of both. A link that
// leads to itself stands for a folder whose mode forbids it, which root may read.
func TestUnreadableRepository(t *testing.T) {
	t.Parallel()
	r := newRepository(t)
	if err := os.Remove(filepath.Join(r.path, "HEAD")); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink("HEAD", filepath.Join(r.path, "HEAD")); err != nil {
		t.Fatal(err)
	}
	_, err := r.open(t).View(t.Context())
	if err == nil || errors.Is(err, ErrNoRepository) || !strings.Contains(err.Error(), "cannot be read") {
		t.Errorf("view: %v", err)
	}
	if hint := process.Hint(err); !strings.Contains(hint, fmt.Sprint(os.Getuid())) {
		t.Errorf("hint: %q", hint)
	}
}

// The repository of another user, which git refuses, is answered with what to do.
func TestRepositoryOfAnotherUser(t *testing.T) {
	t.Parallel()
	refused := errors.New("unknown error: fatal: detected dubious ownership in repository at '/srv/edge.git'")
	err := explain(refused, &transport.Endpoint{Protocol: "file", Path: "/srv/edge.git"})
	if hint := process.Hint(err); !errors.Is(err, refused) || !strings.HasSuffix(hint, "git config --global --add safe.directory /srv/edge.git") {
		t.Errorf("%v, hint: %q", err, hint)
	}
}
