package storetest

import (
	"context"
	"testing"
	"time"

	"github.com/hapsnap/hapsnap/snapshots"
	"github.com/hapsnap/hapsnap/snapshots/channel"
)

// Follower is what can be told of changes of a store.
type Follower interface {
	Follow(ctx context.Context, changed func())
}

// Followed has a store followed until the test ends; a value comes after a change.
func Followed(t *testing.T, s Follower) <-chan struct{} {
	t.Helper()
	changes, ended := make(chan struct{}, 1), make(chan struct{})
	ctx, cancel := context.WithCancel(t.Context())
	go func() {
		defer close(ended)
		s.Follow(ctx, func() {
			select {
			case changes <- struct{}{}:
			default:
			}
		})
	}()
	t.Cleanup(func() { cancel(); <-ended })
	return changes
}

// Hears waits for changes until something is true.
func Hears(t *testing.T, changes <-chan struct{}, what string, ok func() bool) {
	t.Helper()
	deadline := time.After(time.Minute)
	for {
		select {
		case <-changes:
			if ok() {
				return
			}
		case <-deadline:
			t.Fatalf("nothing was heard of %s", what)
		}
	}
}

// RunFollowing tests that a reader who follows a store hears of what is published, deleted and said in
// the channel. Changes are what Followed returns for the reader.
func RunFollowing(t *testing.T, changes <-chan struct{}, reader Reader, writer Store) {
	t.Helper()
	publish := func(content string) snapshots.ID {
		id, _, err := writer.Publish(t.Context(), Draft(content))
		if err != nil {
			t.Fatal(err)
		}
		return id
	}
	view := func() channel.View {
		v, err := reader.View(t.Context())
		if err != nil {
			t.Error(err)
		}
		return v
	}
	first := publish("a")
	Hears(t, changes, "a snapshot", func() bool { return len(view().IDs) == 1 })
	second := publish("b")
	Hears(t, changes, "another one", func() bool { return len(view().IDs) == 2 })
	pause := func(c *channel.Channel) error { *c = c.Paused(channel.Pause{By: "ops"}); return nil }
	if err := writer.UpdateChannel(t.Context(), "pause", time.Date(2026, 1, 2, 12, 0, 0, 0, time.UTC), pause); err != nil {
		t.Fatal(err)
	}
	Hears(t, changes, "a pause", func() bool { return view().Channel.Spec.Pause != nil })
	if err := writer.Delete(t.Context(), first); err != nil {
		t.Fatal(err)
	}
	Hears(t, changes, "a deletion", func() bool { ids := view().IDs; return len(ids) == 1 && ids[0] == second })
}
