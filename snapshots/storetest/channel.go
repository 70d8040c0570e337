package storetest

import (
	"errors"
	"slices"

	"github.com/hapsnap/hapsnap/snapshots"
	"github.com/hapsnap/hapsnap/snapshots/channel"
)

func testChannel(t trial) {
	s := t.Open(nil)
	ids := publishAll(t, s, "a", "b")
	pin := func(c *channel.Channel) error {
		*c = c.Pinned(channel.Pin{Snapshot: ids[0], By: "ops", Reason: "it is slow", At: epoch})
		return nil
	}
	for range 2 { // the second time changes nothing
		if err := s.UpdateChannel(t.Context(), "pin "+ids[0].String(), epoch, pin); err != nil {
			t.Fatal(err)
		}
	}
	no := errors.New("no")
	err := s.UpdateChannel(t.Context(), "unpin", epoch, func(c *channel.Channel) error {
		*c = c.Unpinned()
		return no
	})
	if !errors.Is(err, no) {
		t.Errorf("an edit that fails: %v", err)
	}
	for _, s := range []Reader{s, t.Open(nil)} {
		got := view(t, s).Channel.Spec.Pin
		if got == nil || *got != (channel.Pin{Snapshot: ids[0], By: "ops", Reason: "it is slow", At: epoch}) {
			t.Errorf("the pin is %+v", got)
		}
	}
	// The channel is not a snapshot, and publishing leaves it alone.
	publish(t, s, Draft("c"))
	if view(t, s).Channel.Spec.Pin == nil {
		t.Error("publishing lost the pin")
	}
}

// A channel cannot be unsaid by taking it away: who has seen it holds, also after a
// restart, and writes no other in its place.
func testChannelGone(t trial) {
	used := t.Open(nil)
	id := publish(t, used, Draft("a"))
	if seen := view(t, used).Seen; seen.Store == "" { // a channel may be there from the start
		t.Errorf("%+v was seen", seen)
	}
	if err := used.UpdateChannel(t.Context(), "approve", epoch, approve(id)); err != nil {
		t.Fatal(err)
	}
	seen := view(t, used).Seen
	restarted, elsewhere := t.Open(nil), t.Open(nil)
	restarted.Remember(seen)
	seen.Store += "-other"
	elsewhere.Remember(seen)
	t.RemoveChannel()
	var gone *channel.RewoundError
	for _, s := range []Store{used, restarted} {
		_, err := s.View(t.Context())
		if !errors.As(err, &gone) || gone.Channel == "" || len(gone.Snapshots) > 0 {
			t.Fatalf("the channel is gone: %v", err)
		}
		if err := s.UpdateChannel(t.Context(), "approve", epoch, approve(id)); !errors.Is(err, channel.ErrRewound) {
			t.Errorf("a new channel was written: %v", err)
		}
		wantListed(t, s, id)
	}
	for _, s := range []Store{elsewhere, t.Open(nil)} { // they have not seen it
		if got := view(t, s).Channel.Spec.Approved; len(got) != 0 {
			t.Errorf("approved: %v", got)
		}
	}
	err := t.Open(nil).UpdateChannel(t.Context(), "accept", epoch, func(c *channel.Channel) error {
		*c = c.RewindAccepted(channel.AcceptedRewind{Channels: []string{gone.Channel}, By: "ann", Reason: "it is so", At: epoch})
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	for _, s := range []Store{used, restarted, t.Open(nil)} {
		v := view(t, s)
		if got := v.Channel.Spec.AcceptedRewind; got == nil || got.By != "ann" || got.Reason != "it is so" || v.Seen.Channel == "" {
			t.Errorf("accepted %+v, seen %+v", got, v.Seen)
		}
		if err := s.UpdateChannel(t.Context(), "approve", epoch, approve(id)); err != nil {
			t.Errorf("after it was accepted: %v", err)
		}
	}
}

// wantListed checks what the store lists, where its channel cannot be read.
func wantListed(t trial, s Reader, want ...snapshots.ID) {
	t.Helper()
	if got, err := s.IDs(t.Context()); err != nil || !slices.Equal(got, want) {
		t.Errorf("the store lists %v, want %v: %v", got, want, err)
	}
}

// twoChannels is what somebody wrote who meant the second document, or both.
const twoChannels = "apiVersion: hapsnap.dev/v1alpha1\nkind: Channel\nspec: {requireApproval: true}\n---\napiVersion: hapsnap.dev/v1alpha1\nkind: Channel\nspec: {pause: {by: ops}}\n"

func testChannelUnreadable(t trial) {
	s := t.Open(nil)
	publish(t, s, Draft("a"))
	for _, text := range []string{"", "spec: [", "kind: Channel\n", "apiVersion: hapsnap.dev/v1alpha1\nkind: Channel\nspec: {pinn: {}}\n", twoChannels} {
		t.SetChannel([]byte(text))
		for _, s := range []Store{s, t.Open(nil)} {
			if v, err := s.View(t.Context()); err == nil {
				t.Errorf("the channel %q is read as %+v", text, v.Channel)
			}
			if ids, err := s.IDs(t.Context()); err != nil || len(ids) != 1 {
				t.Errorf("the channel %q: the snapshots are %v, %v", text, ids, err)
			}
			if err := s.UpdateChannel(t.Context(), "approve", epoch, approve(snapshots.ID{Revision: 1, Short: "0123456789"})); err == nil {
				t.Errorf("the channel %q was written over", text)
			}
		}
	}
	t.SetChannel([]byte("# by hand\nkind: Channel\napiVersion: hapsnap.dev/v1alpha1\nmetadata: {name: edge}\nspec: {pause: {by: ops}}\n"))
	if pause := view(t, s).Channel.Spec.Pause; pause == nil || pause.By != "ops" {
		t.Errorf("the channel that was mended pauses %+v", pause)
	}
}
