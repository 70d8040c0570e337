package cli

import (
	"strings"
	"testing"
	"time"

	"github.com/hapsnap/hapsnap/snapshots"
	"github.com/hapsnap/hapsnap/snapshots/channel"
)

// The life of a snapshot says why it went: by what somebody did, or as an override had expired.
func TestLifeTellsWhy(t *testing.T) {
	t.Parallel()
	one, two := snapshots.ID{Revision: 1, Short: "1111111111"}, snapshots.ID{Revision: 2, Short: "2222222222"}
	minute := 0
	at := func(e channel.Entry) channel.Entry {
		minute++
		e.At = time.Date(2026, 1, 1, 12, minute, 0, 0, time.UTC)
		return e
	}
	turn := func(verb channel.Verb, id snapshots.ID) channel.Entry {
		return at(channel.Entry{Turn: true, Fleet: "edge", Verb: verb, Snapshot: id, By: "pusher"})
	}
	begun := []channel.Entry{at(channel.Entry{Verb: channel.VerbOverride, Snapshot: one, By: "ann"}), turn(channel.TurnBegan, one), turn(channel.TurnDone, one)}
	next := []channel.Entry{turn(channel.TurnBegan, two), turn(channel.TurnDone, two)}
	for want, why := range map[string]channel.Entry{
		"r000002-2222222222 took its place after an override had expired": turn(channel.TurnExpired, one),
		"r000002-2222222222 took its place after pin by bob":              at(channel.Entry{Verb: channel.VerbPin, Snapshot: two, By: "bob"}),
	} {
		told := life(one, append(append(begun[:len(begun):len(begun)], why), next...))
		if last := told[len(told)-1]; last.Text != want {
			t.Errorf("%q, want %q", last.Text, want)
		}
	}
	if told := life(one, begun); strings.Contains(told[len(told)-1].Text, "place") {
		t.Errorf("%v", told)
	}
}
