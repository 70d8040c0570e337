package pusher

import (
	"testing"
	"time"

	"github.com/hapsnap/hapsnap/pusher/rollout"
	"github.com/hapsnap/hapsnap/snapshots"
	"github.com/hapsnap/hapsnap/snapshots/channel"
)

var (
	noon = time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC)
	r1   = snapshots.ID{Revision: 1, Short: "aaaaaaaaaa"}
	r2   = snapshots.ID{Revision: 2, Short: "bbbbbbbbbb"}
)

func TestDecide(t *testing.T) {
	pin := func(id snapshots.ID, at time.Time) channel.Channel {
		return channel.Channel{}.Pinned(channel.Pin{Snapshot: id, At: at})
	}
	failed := func(intent string, recorded bool) []rollout.Failure {
		return []rollout.Failure{{Snapshot: r2, Intent: intent, Recorded: recorded, At: noon, Good: r1}}
	}
	tests := map[string]struct {
		channel channel.Channel
		failed  []rollout.Failure
		want    snapshots.ID
		intent  string
		hold    bool
	}{
		"the newest": {want: r2, intent: "newest"},
		"not what failed, before the channel says": {failed: failed("newest", false), want: r1, intent: "newest"},
		"nothing, where nothing was good":          {failed: []rollout.Failure{{Snapshot: r2, Intent: "newest", At: noon}}, hold: true, intent: "none"},
		"again, when the channel was changed":      {failed: failed("newest", true), want: r2, intent: "newest"},
		"a pin":                                    {channel: pin(r1, noon), want: r1, intent: "pin 2026-11-21T12:00:00Z"},
		"a pin of what failed as the newest":       {channel: pin(r2, noon), failed: failed("newest", false), want: r2, intent: "pin 2026-11-21T12:00:00Z"},
		"not a pin that failed":                    {channel: pin(r2, noon), failed: failed("pin 2026-11-21T12:00:00Z", false), hold: true, intent: "pin 2026-11-21T12:00:00Z"},
		"a later pin of what failed":               {channel: pin(r2, noon.Add(time.Minute)), failed: failed("pin 2026-11-21T12:00:00Z", false), want: r2, intent: "pin 2026-11-21T12:01:00Z"},
		"not what failed under a pin":              {failed: failed("pin 2026-11-21T12:00:00Z", false), want: r1, intent: "newest"},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			got := decide(channel.View{IDs: []snapshots.ID{r1, r2}, Channel: test.channel}, test.failed, noon)
			if got.ID != test.want || got.Intent != test.intent || got.Hold != test.hold {
				t.Errorf("decided for %s by %q, hold %v; want %s by %q, hold %v", got.ID, got.Intent, got.Hold, test.want, test.intent, test.hold)
			}
		})
	}
}
