package gitstore

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/hapsnap/hapsnap/snapshots"
	"github.com/hapsnap/hapsnap/snapshots/channel"
	"github.com/hapsnap/hapsnap/snapshots/storetest"
)

// publish publishes a draft that must be new.
func publish(t *testing.T, s *Store, d snapshots.Draft) snapshots.ID {
	t.Helper()
	id, published, err := s.Publish(t.Context(), d)
	if err != nil || !published {
		t.Fatalf("publish: %v, published %v, %v", id, published, err)
	}
	return id
}

// What the store pushes is an ordinary repository for git.
func TestHistoryForPeople(t *testing.T) {
	t.Parallel()
	r := newRepository(t, "transfer.fsckObjects=true", "receive.fsckObjects=true")
	s := r.open(t)
	first := publish(t, s, storetest.Draft("web", "maps/path.map", "/ web\n", "files/note.txt", "x"))
	second := publish(t, s, storetest.Draft("shop"))
	pin := func(c *channel.Channel) error {
		*c = c.Pinned(channel.Pin{Snapshot: first, By: "ops"})
		return nil
	}
	if err := s.UpdateChannel(t.Context(), "pin "+first.String(), time.Unix(1e9, 0), pin); err != nil {
		t.Fatal(err)
	}
	if got := r.git(t, "fsck", "--strict", "--full", "--no-dangling"); got != "" {
		t.Errorf("git fsck: %s", got)
	}
	clone := filepath.Join(t.TempDir(), "clone")
	runGit(t, ".", nil, "clone", "--quiet", r.path, clone)
	git := func(args ...string) string { return runGit(t, clone, nil, args...) }
	for name, test := range map[string]struct{ got, want string }{
		"subjects": {git("log", "--format=%s"), "edge r2: ~1 backend (shop)\nedge r1: ~1 backend (web)"},
		"who":      {git("log", "-1", "--format=%an <%ae> %cn <%ce> %aI %cI"), "hapsnap <hapsnap@localhost> hapsnap <hapsnap@localhost> 2026-03-01T12:00:00+00:00 2026-03-01T12:00:00+00:00"},
		"trailer":  {git("log", "-1", "--format=%(trailers:key=Hapsnap-Snapshot,valueonly)"), second.String()},
		"tags":     {git("tag", "--list"), "edge/" + first.String() + "\nedge/" + second.String()},
		"files":    {git("ls-tree", "-r", "--name-only", "HEAD"), "haproxy.cfg\nmaps/host.map\nsnapshot.yaml"},
		"before":   {git("ls-tree", "-r", "--name-only", "edge/"+first.String()), "files/note.txt\nhaproxy.cfg\nmaps/host.map\nmaps/path.map\nsnapshot.yaml"},
		"channel":  {git("log", "--format=%s %aI", "origin/edge-channel"), "edge channel: pin " + first.String() + " 2001-09-09T01:46:40+00:00"},
	} {
		if diff := cmp.Diff(test.want, test.got); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
	}
	changes := git("log", "-p", "-1", "--format=%s", "haproxy.cfg")
	for _, line := range []string{"-backend web", "+backend shop", " global"} {
		if !strings.Contains(changes, "\n"+line+"\n") && !strings.HasSuffix(changes, "\n"+line) {
			t.Errorf("git log -p haproxy.cfg does not show %q:\n%s", line, changes)
		}
	}
	if config, err := os.ReadFile(filepath.Join(clone, "haproxy.cfg")); err != nil || !strings.Contains(string(config), "backend shop") {
		t.Errorf("haproxy.cfg in the clone: %v\n%s", err, config)
	}
}

// A revision can be fetched by its name, without its history.
func TestRevisionAtDepthOne(t *testing.T) {
	t.Parallel()
	r := newRepository(t)
	s := r.open(t)
	first := publish(t, s, storetest.Draft("a"))
	publish(t, s, storetest.Draft("b"))
	clone := filepath.Join(t.TempDir(), "clone")
	runGit(t, ".", nil, "-c", "advice.detachedHead=false", "clone", "--quiet", "--depth=1", "--branch=edge/"+first.String(), "file://"+r.path, clone)
	if got := runGit(t, clone, nil, "log", "--format=%s"); got != "edge r1: ~1 backend (a)" {
		t.Errorf("the clone holds %q", got)
	}
}

// The same drafts give the same commits everywhere, so a push can be recognized if its answer was lost.
func TestCommitsAreReproducible(t *testing.T) {
	t.Parallel()
	var commits []string
	for range 2 {
		r := newRepository(t)
		publish(t, r.open(t), storetest.Draft("a", "maps/b.map", "b", "maps/a.map", "a"))
		d := storetest.Draft("b")
		d.Time = d.Time.In(time.FixedZone("elsewhere", 3600))
		publish(t, r.open(t), d)
		commits = append(commits, r.git(t, "rev-parse", "edge"))
	}
	if commits[0] != commits[1] {
		t.Errorf("commits %v", commits)
	}
	r := newRepository(t)
	timeless := storetest.Draft("a")
	timeless.Time = time.Time{}
	publish(t, r.open(t, func(o *Options) { o.Name, o.Author = "staging", Author{"Ops", "ops@example.com"} }), timeless)
	if got, want := r.git(t, "cat-file", "commit", "edge"), "author Ops <ops@example.com> 0 +0000\ncommitter Ops <ops@example.com> 0 +0000\n\nstaging r1: ~1 backend (a)\n"; !strings.Contains(got, want) {
		t.Errorf("commit %q, want %q in it", got, want)
	}
	if got := r.git(t, "fsck", "--strict"); got != "" {
		t.Errorf("git fsck: %s", got)
	}
}
