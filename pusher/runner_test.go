package pusher

import (
	"context"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/hapsnap/hapsnap/internal/testing/dataplanetest"
	"github.com/hapsnap/hapsnap/pusher/core"
	"github.com/hapsnap/hapsnap/pusher/observe"
	"github.com/hapsnap/hapsnap/pusher/rollout"
	"github.com/hapsnap/hapsnap/snapshots"
	"github.com/hapsnap/hapsnap/snapshots/channel"
	"github.com/hapsnap/hapsnap/snapshots/dirstore"
)

func TestRolloutCanaryFirst(t *testing.T) {
	t.Parallel()
	r := newRig(t, dataplanetest.V32, "a", "b", "c")
	r.endpoints(echo(t, "one"))
	id := r.publish(config("1", ""))
	soaks := func(s observe.Status) bool { return s.Phase() == rollout.Soaking && s.Rollout.Wave == 1 }
	r.watch(func(s observe.Status) {
		if b, c := r.pushes("b"), r.pushes("c"); soaks(s) && b+c > 0 {
			t.Errorf("b got %d pushes and c %d while the canary soaked", b, c)
		}
	})
	soaked := r.ever(soaks)
	r.allRunAfter(id)
	if !soaked() {
		t.Error("the canary did not soak")
	}
	for _, name := range r.names {
		if n := r.pushes(name); n != 1 {
			t.Errorf("%s got %d pushes, want 1", name, n)
		}
		if revision, body, err := r.get(name); revision != "1" || body != "one" {
			t.Errorf("%s answers %q of revision %q: %v", name, body, revision, err)
		}
	}
}

func TestFailedCanaryLeavesTheOthersAlone(t *testing.T) {
	t.Parallel()
	r := newRig(t, dataplanetest.V32, "a", "b", "c")
	r.endpoints(echo(t, "one"))
	good := r.publish(config("1", ""))
	r.run()
	r.allRun(good)
	writes := r.writes("b") + r.writes("c")

	bad := r.publish(config("2", broken))
	s := r.until("the failure is known", func(s observe.Status) bool { return len(s.Rejected) == 1 && s.Rejected[0].Recorded })
	if got := s.Rejected[0]; got.Snapshot != bad || !strings.Contains(got.Reason, "a: refused") {
		t.Errorf("rejected is %+v", got)
	}
	s = r.allRun(good)
	if s.Channel.Wanted != good || s.Channel.Behind != 1 {
		t.Errorf("channel is %+v", s.Channel)
	}
	if got := r.writes("b") + r.writes("c"); got != writes {
		t.Errorf("b and c got %d requests that change something", got-writes)
	}
	if revision, body, err := r.get("a"); revision != "1" || body != "one" {
		t.Errorf("the canary answers %q of revision %q: %v", body, revision, err)
	}
	if text, _ := r.instances["a"].Config(); !strings.Contains(text, "x-revision 1") {
		t.Errorf("on the canary's disk is\n%s", text)
	}

	// The channel shows the rejection to everybody.
	view, err := r.store.View(t.Context())
	if _, rejected := view.Channel.Rejection(bad); !rejected {
		t.Errorf("the channel does not reject %s: %v", bad, err)
	}

	// Different content still flows.
	r.allRun(r.publish(config("3", "")))
}

func TestFilesThatNothingNeedsAreRemoved(t *testing.T) {
	t.Parallel()
	r := newRig(t, dataplanetest.V32, "a")
	r.options.CollectAfter = time.Hour
	r.endpoints(echo(t, "one"))
	r.allRunAfter(r.publish(config("1", "")))
	maps := r.instances["a"].Dirs.Maps
	old := list(t, maps)
	if err := os.WriteFile(filepath.Join(maps, "mine-0123abcd.map"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	second := r.publish(config("2", ""))
	r.allRun(second)
	if now := list(t, maps); len(old) != 1 || !slices.Contains(now, old[0]) {
		t.Errorf("the maps were %v, and are %v already", old, now)
	}
	r.kill()
	r.options.CollectAfter = time.Second
	r.run()
	eventually(t, "the old map is gone", func() bool { return !slices.Contains(list(t, maps), old[0]) })
	if now := list(t, maps); len(now) != 2 || !slices.Contains(now, "mine-0123abcd.map") {
		t.Errorf("left are the maps %v", now)
	}
	r.allRun(second)
}

func list(t *testing.T, dir string) []string {
	t.Helper()
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, e := range entries {
		names = append(names, e.Name())
	}
	return names
}

// teller is a store that tells of its changes.
type teller struct {
	Store
	changes chan struct{}
}

func (s teller) Follow(ctx context.Context, changed func()) {
	for {
		select {
		case <-s.changes:
			changed()
		case <-ctx.Done():
			return
		}
	}
}

// A store that tells of its changes is looked into when it does, however rarely it is
// polled.
func TestStoreThatTells(t *testing.T) {
	t.Parallel()
	path := t.TempDir()
	store := dirstore.Open(path, dirstore.Options{})
	s := teller{store, make(chan struct{})}
	o, in := Options{Store: s, PollInterval: time.Hour}, newInbox()
	ctx, cancel := context.WithCancel(t.Context())
	in.start(func() { in.watchStore(ctx, o) })
	defer func() { cancel(); in.jobs.Wait() }()
	see := func() channel.View {
		select {
		case ev := <-in.events:
			return ev.(core.ViewRead).View
		case <-time.After(patience):
			t.Fatal("the store was not looked into")
			return channel.View{}
		}
	}
	if v := see(); len(v.IDs) != 0 {
		t.Errorf("at first there is %v", v.IDs)
	}
	d := snapshots.Draft{Files: []snapshots.File{{Path: snapshots.ConfigFile, Content: []byte("global\n")}}, Time: time.Now()}
	id, _, err := store.Publish(t.Context(), d)
	if err != nil {
		t.Fatal(err)
	}
	s.changes <- struct{}{}
	if v := see(); v.Head() != id {
		t.Errorf("the newest is %s, want %s", v.Head(), id)
	}
}
