package pusher

import (
	"testing"
	"time"

	"github.com/hapsnap/hapsnap/pusher/rollout"
	"github.com/hapsnap/hapsnap/snapshots"
	"github.com/hapsnap/hapsnap/snapshots/channel"
)

// What failed for one wish is not rejected where people named it anew meanwhile, seen by
// the pusher or not.
func TestRejectInChannel(t *testing.T) {
	t.Parallel()
	pin := func(id snapshots.ID, at time.Time) func(channel.Channel) channel.Channel {
		return func(c channel.Channel) channel.Channel { return c.Pinned(channel.Pin{Snapshot: id, At: at}) }
	}
	override := func(until time.Time) func(channel.Channel) channel.Channel {
		return func(c channel.Channel) channel.Channel {
			return c.Overridden(channel.Override{Snapshot: r2, Expires: until})
		}
	}
	pause := func(c channel.Channel) channel.Channel { return c.Paused(channel.Pause{}) }
	const pinnedAtNoon = "pin 2026-11-21T12:00:00Z"
	tests := map[string]struct {
		says   []func(channel.Channel) channel.Channel
		intent string
		want   bool
	}{
		"nobody named it":          {nil, "newest", true},
		"the pin it failed for":    {says(pin(r2, noon)), pinnedAtNoon, true},
		"pinned since":             {says(pin(r2, noon)), "newest", false},
		"pinned again":             {says(pin(r2, noon.Add(time.Minute))), pinnedAtNoon, false},
		"pinned again, and paused": {says(pin(r2, noon.Add(time.Minute)), pause), pinnedAtNoon, false},
		"another one is pinned":    {says(pin(r1, noon.Add(time.Minute))), pinnedAtNoon, true},
		"its content is pinned by another name": {
			says(pin(snapshots.ID{Revision: 9, Short: r2.Short}, noon.Add(time.Minute))), pinnedAtNoon, false,
		},
		"unpinned since":                    {says(pin(r2, noon), channel.Channel.Unpinned), pinnedAtNoon, true},
		"overridden since":                  {says(override(noon.Add(time.Hour))), "newest", false},
		"an override that is over":          {says(override(noon)), "newest", true},
		"the pin it failed for, overridden": {says(pin(r2, noon), override(noon.Add(time.Hour))), pinnedAtNoon, true},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var c channel.Channel
			for _, say := range test.says {
				c = say(c)
			}
			f := rollout.Failure{Snapshot: r2, Intent: test.intent, At: noon}
			c = WriteRejection{Failure: f, Fleet: "edge", At: noon}.Edit(c, digestLike(r2))
			if _, got := c.Rejection(r2); got != test.want {
				t.Errorf("rejected: %v, want %v", got, test.want)
			}
		})
	}
}

func says(words ...func(channel.Channel) channel.Channel) []func(channel.Channel) channel.Channel {
	return words
}
