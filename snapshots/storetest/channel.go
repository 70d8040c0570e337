package storetest

import (
	"errors"

	"github.com/hapsnap/hapsnap/snapshots"
)

func testChannel(t trial) {
	s := t.Open(nil)
	ids := publishAll(t, s, "a", "b")
	pin := func(c *snapshots.Channel) error {
		*c = c.Pinned(snapshots.Pin{Snapshot: ids[0], By: "ops", Reason: "it is slow", At: epoch})
		return nil
	}
	for range 2 { // the second time changes nothing
		if err := s.UpdateChannel(t.Context(), "pin "+ids[0].String(), epoch, pin); err != nil {
			t.Fatal(err)
		}
	}
	no := errors.New("no")
	err := s.UpdateChannel(t.Context(), "unpin", epoch, func(c *snapshots.Channel) error {
		*c = c.Unpinned()
		return no
	})
	if !errors.Is(err, no) {
		t.Errorf("an edit that fails: %v", err)
	}
	for _, s := range []Reader{s, t.Open(nil)} {
		got := view(t, s).Channel.Spec.Pin
		if got == nil || *got != (snapshots.Pin{Snapshot: ids[0], By: "ops", Reason: "it is slow", At: epoch}) {
			t.Errorf("the pin is %+v", got)
		}
	}
	// The channel is not a snapshot, and publishing leaves it alone.
	publish(t, s, Draft("c"))
	if view(t, s).Channel.Spec.Pin == nil {
		t.Error("publishing lost the pin")
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
