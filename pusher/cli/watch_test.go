package cli

import (
	"bytes"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/hapsnap/hapsnap/pusher"
	"github.com/hapsnap/hapsnap/pusher/rollout"
	"github.com/hapsnap/hapsnap/snapshots"
	"github.com/hapsnap/hapsnap/snapshots/bind"
)

// story is what a watcher sees, one after the other.
func story(t *testing.T) []pusher.Status {
	t.Helper()
	id := func(text string) snapshots.ID {
		id, err := snapshots.ParseID(text)
		if err != nil {
			t.Fatal(err)
		}
		return id
	}
	one, two := id("r000001-aaaaaaaaaa"), id("r000002-bbbbbbbbbb")
	at := time.Date(2026, 11, 22, 12, 0, 0, 0, time.UTC)
	instance := func(name string, runs snapshots.ID, inSync bool) pusher.InstanceStatus {
		return pusher.InstanceStatus{Name: name, Reachable: true, Running: runs, InSync: inSync}
	}
	done := pusher.Status{
		Updated: at, Channel: pusher.ChannelStatus{Wanted: one, Message: one.String() + " is the newest"}, Good: one,
		Instances: []pusher.InstanceStatus{instance("a", one, true), instance("b", one, true)},
	}
	begun := done
	begun.Updated = at.Add(time.Second)
	begun.Channel = pusher.ChannelStatus{Wanted: two, Message: two.String() + " is the newest"}
	begun.Rollout = &pusher.RolloutStatus{Target: two, Phase: rollout.Pushing, Wave: 1, Members: []string{"a"}}
	begun.Rollout.Change = &pusher.Change{Snapshot: two, From: one, Class: bind.Reload, Old: true, File: snapshots.ConfigFile, Line: 12, Text: "bind :81"}
	begun.Instances = []pusher.InstanceStatus{instance("a", two, true), instance("b", one, false)}
	begun.Troubles = []pusher.Trouble{{About: "store", Error: "it is gone", Since: at}}
	gone := begun
	gone.Updated, gone.Troubles = at.Add(2*time.Second), nil
	gone.Instances = begun.Instances[:1]
	return []pusher.Status{done, done, begun, gone}
}

func TestWatchAsLines(t *testing.T) {
	var out bytes.Buffer
	w := &watcher{out: &out}
	for _, s := range story(t) {
		if err := w.show(s, s.Updated); err != nil {
			t.Fatal(err)
		}
	}
	want := `2026-11-22T12:00:00Z wanted: r000001-aaaaaaaaaa is the newest
2026-11-22T12:00:00Z rollout: none, the fleet runs r000001-aaaaaaaaaa
2026-11-22T12:00:00Z a: runs r000001-aaaaaaaaaa, in sync: yes
2026-11-22T12:00:00Z b: runs r000001-aaaaaaaaaa, in sync: yes
2026-11-22T12:00:01Z wanted: r000002-bbbbbbbbbb is the newest
2026-11-22T12:00:01Z rollout: pushing r000002-bbbbbbbbbb, wave 1: a
2026-11-22T12:00:01Z takes: reload: haproxy.cfg:12: -bind :81
2026-11-22T12:00:01Z trouble: store: it is gone
2026-11-22T12:00:01Z a: runs r000002-bbbbbbbbbb, in sync: yes
2026-11-22T12:00:01Z b: runs r000001-aaaaaaaaaa, in sync: no
2026-11-22T12:00:02Z no more trouble: store: it is gone
2026-11-22T12:00:02Z b: left the fleet
`
	if diff := cmp.Diff(want, out.String()); diff != "" {
		t.Errorf("shown otherwise (-want +got):\n%s", diff)
	}
}

func TestWatchAsPage(t *testing.T) {
	var out bytes.Buffer
	w := &watcher{out: &out, page: true}
	s := story(t)
	for _, s := range s[:2] {
		if err := w.show(s, s.Updated); err != nil {
			t.Fatal(err)
		}
	}
	if n := strings.Count(out.String(), "\x1b[H"); n != 2 { // the second draws over the first, which was cleared
		t.Errorf("drawn %d times", n)
	}
	out.Reset()
	if err := w.show(s[1], s[1].Updated); err != nil || out.Len() > 0 {
		t.Errorf("the same is drawn again: %q, %v", &out, err)
	}
	if err := w.show(s[2], s[2].Updated); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"\x1b[H", "pushing r000002-bbbbbbbbbb, wave 1: a\x1b[K\n", "takes     reload: haproxy.cfg:12: -bind :81\x1b[K\n", "[###############...............] 1 of 2 run r000002-bbbbbbbbbb", "\x1b[J"} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("the page lacks %q:\n%s", want, &out)
		}
	}
}

func TestWatchAsJSON(t *testing.T) {
	var out bytes.Buffer
	w := &watcher{out: &out, json: true}
	for _, s := range story(t) {
		if err := w.show(s, s.Updated); err != nil {
			t.Fatal(err)
		}
	}
	if lines := strings.Split(strings.TrimSpace(out.String()), "\n"); len(lines) != 3 || !strings.HasPrefix(lines[1], `{"updated":"2026-11-22T12:00:01Z"`) {
		t.Errorf("%d lines:\n%s", len(lines), &out)
	}
}
