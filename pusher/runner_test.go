package pusher

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/hapsnap/hapsnap/pusher/core"
	"github.com/hapsnap/hapsnap/pusher/report"
	"github.com/hapsnap/hapsnap/snapshots"
	"github.com/hapsnap/hapsnap/snapshots/channel"
	"github.com/hapsnap/hapsnap/snapshots/dirstore"
)

// teller is a store that reports its changes.
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

// If a store reports its changes, the pusher reads it after each report, however rarely it polls.
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

func TestFailureTwoPushersWithOneState(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	s.write("fleet.yaml", "apiVersion: hapsnap.dev/v1alpha1\nkind: Fleet\nmetadata: {name: edge}\nspec:\n  instances: [{name: a, url: 'http://127.0.0.1:1', username: u, password: p}]\n")
	s.run()
	s.until("it has its state", func(now report.Status) bool { return !now.Updated.IsZero() })
	if err := Run(t.Context(), s.options); err == nil || !strings.Contains(err.Error(), "another pusher is using it") {
		t.Errorf("a second pusher ended with: %v", err)
	}
}

// If another pusher writes its status to the same place, this pusher cannot write its own. That is
// a trouble until it can.
func TestStatusOfAnotherIsTrouble(t *testing.T) {
	t.Parallel()
	b, refused := newInbox(), errors.New("the other writes there")
	var err error
	write := b.reporting(func(context.Context, report.Published) error { return err })
	m := core.New(core.Settings{PollInterval: time.Second}, core.State{}, nil, noon)
	trouble := func(writes error) string {
		t.Helper()
		err = writes
		if got := write(t.Context(), report.Published{}); !errors.Is(got, writes) {
			t.Fatalf("%v is told as %v", writes, got)
		}
		select {
		case ev := <-b.events:
			m.Step(noon, ev)
		default:
		}
		_, s := m.Shown()
		for _, t := range s.Troubles {
			if t.About == "status" {
				return t.Error
			}
		}
		return ""
	}
	for _, step := range []struct {
		writes error
		want   string
	}{
		{nil, ""}, {errors.New("it is out of reach"), ""},
		{report.UnwritableError{Err: refused}, "the other writes there"}, {errors.New("it is out of reach"), "the other writes there"}, {nil, ""},
	} {
		if got := trouble(step.writes); got != step.want {
			t.Errorf("after %v the trouble is %q, not %q", step.writes, got, step.want)
		}
	}
}
