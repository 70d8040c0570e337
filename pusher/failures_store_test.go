package pusher

import (
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/hapsnap/hapsnap/internal/testing/dataplanetest"
	"github.com/hapsnap/hapsnap/pusher/report"
	"github.com/hapsnap/hapsnap/snapshots"
	"github.com/hapsnap/hapsnap/snapshots/channel"
	"github.com/hapsnap/hapsnap/snapshots/gitstore"
)

// The pusher does not follow a branch that was set back. Whoever did that may not know that
// instances run what is gone.
func TestFailureStoreRewound(t *testing.T) {
	t.Parallel()
	r := newRig(t, dataplanetest.V32, "a")
	r.endpoints(echo(t, "one"))
	path := filepath.Join(r.dir, "edge.git")
	git(t, "init", "--quiet", "--bare", "--initial-branch=main", path)
	store, err := gitstore.Open(gitstore.Options{URL: path, CacheDir: filepath.Join(r.dir, "cache")})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { store.Close() })
	r.options.Store = store
	publish := func(revision string) snapshots.ID {
		id, _, err := store.Publish(t.Context(), snapshots.Draft{Time: time.Now(), Files: []snapshots.File{
			{Path: snapshots.ConfigFile, Content: []byte(config(revision, ""))},
			{Path: "maps/host.map", Content: []byte("# none\n")},
		}})
		if err != nil {
			t.Fatal(err)
		}
		return id
	}
	publish("1")
	second := publish("2")
	r.allRunAfter(second)
	writes, main := r.writes("a"), strings.TrimSpace(git(t, "-C", path, "rev-parse", "main"))
	git(t, "-C", path, "update-ref", "refs/heads/main", "main~1")
	r.until("it is said", func(s report.Status) bool {
		return len(s.Troubles) == 1 && s.Troubles[0].About == "store" && strings.Contains(s.Troubles[0].Error, "r000002")
	})
	r.kill()
	r.run()
	r.until("it is said again", func(s report.Status) bool {
		return len(s.Troubles) == 1 && s.Troubles[0].About == "store" && statusOf(s, "a").Running == second
	})
	if revision, _, err := r.get("a"); revision != "2" || r.writes("a") != writes {
		t.Errorf("a runs revision %q: %v; it got %d requests that change something", revision, err, r.writes("a")-writes)
	}
	git(t, "-C", path, "update-ref", "refs/heads/main", main)
	r.until("the trouble is over", func(s report.Status) bool { return len(s.Troubles) == 0 && statusOf(s, "a").InSync })
}

func git(t *testing.T, args ...string) string {
	t.Helper()
	out, err := exec.CommandContext(t.Context(), "git", args...).CombinedOutput()
	if err != nil {
		t.Fatalf("git %v: %v\n%s", args, err, out)
	}
	return string(out)
}

// If the channel is deleted, or replaced by an old one, that counts neither as an approval nor as a
// pin. What runs is held, also after a restart, until a person accepts the loss of the channel.
//
//nolint:funlen // one story, told in order
func TestFailureChannelUnsaid(t *testing.T) {
	t.Parallel()
	r := newRig(t, dataplanetest.V32, "a")
	r.endpoints(echo(t, "one"))
	path := filepath.Join(r.dir, "edge.git")
	git(t, "init", "--quiet", "--bare", "--initial-branch=main", path)
	store, err := gitstore.Open(gitstore.Options{URL: path, CacheDir: filepath.Join(r.dir, "cache")})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { store.Close() })
	publish := func(revision string) snapshots.ID {
		t.Helper()
		id, _, err := store.Publish(t.Context(), snapshots.Draft{Time: time.Now(), Files: []snapshots.File{
			{Path: snapshots.ConfigFile, Content: []byte(config(revision, ""))},
			{Path: "maps/host.map", Content: []byte("# none\n")},
		}})
		if err != nil {
			t.Fatal(err)
		}
		return id
	}
	say := func(edit func(c channel.Channel) channel.Channel) {
		t.Helper()
		person, err := gitstore.Open(gitstore.Options{URL: path, CacheDir: filepath.Join(r.dir, "cache")})
		if err != nil {
			t.Fatal(err)
		}
		defer person.Close()
		err = person.UpdateChannel(t.Context(), "by hand", time.Now(), func(c *channel.Channel) error {
			*c = edit(*c)
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	reopen := func() { // as a restarted process does
		t.Helper()
		if r.options.Store, err = gitstore.Open(gitstore.Options{URL: path, CacheDir: filepath.Join(r.dir, "cache")}); err != nil {
			t.Fatal(err)
		}
	}
	tip := func() string { return strings.TrimSpace(git(t, "-C", path, "rev-parse", "main-channel")) }

	first := publish("1")
	say(func(c channel.Channel) channel.Channel { return c.WithApproval(true).Approve(first) })
	say(func(c channel.Channel) channel.Channel {
		return c.Pinned(channel.Pin{Snapshot: first, At: time.Now()})
	})
	pinned := tip()
	second := publish("2")
	say(func(c channel.Channel) channel.Channel { return c.Unpinned().Approve(second) })
	publish("3") // nobody approves it
	reopen()
	r.allRunAfter(second)
	believed := tip()
	r.until("it is kept which channel was seen", func(report.Status) bool {
		seen, err := ReadSeen(r.options.State)
		return err == nil && seen.Channel == believed
	})
	held := func(how string) {
		t.Helper()
		r.until(how+" is said", func(s report.Status) bool {
			return len(s.Troubles) == 1 && s.Troubles[0].About == "store" && strings.Contains(s.Troubles[0].Error, "accept-rewind") &&
				s.Channel.Rewound && s.Condition().Phase == report.Degraded && statusOf(s, "a").Running == second
		})
	}
	for how, commit := range map[string]string{"gone": strings.Repeat("0", 40), "set back": pinned} {
		git(t, "-C", path, "update-ref", "refs/heads/main-channel", commit)
		held(how)
		r.kill()
		reopen()
		r.run()
		held(how + ", after a restart,")
	}
	git(t, "-C", path, "update-ref", "refs/heads/main-channel", believed)
	r.until("what was put back is believed", func(s report.Status) bool { return len(s.Troubles) == 0 && statusOf(s, "a").InSync })
	if n := r.pushes("a"); n != 1 {
		t.Errorf("a got %d pushes, want 1", n)
	}
	git(t, "-C", path, "update-ref", "refs/heads/main-channel", pinned)
	held("set back once more")
	say(func(c channel.Channel) channel.Channel {
		return c.RewindAccepted(channel.AcceptedRewind{Channels: []string{believed}})
	})
	r.allRun(first)
}
