package core

import (
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/hapsnap/hapsnap/pusher/binding"
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

func TestLacks(t *testing.T) {
	t.Parallel()
	const slicesOf2, secretOf2 = "may not list EndpointSlices in team2", "may not read Secret team2/tls"
	for name, test := range map[string]struct {
		because      channel.Reason
		wanted, good []string
		unknown      bool // the wanted snapshot cannot be bound
		want         []string
	}{
		"nothing is lacking":                         {because: channel.BecauseNewest},
		"a new namespace":                            {because: channel.BecauseNewest, wanted: []string{slicesOf2, secretOf2}, want: []string{slicesOf2, secretOf2}},
		"the last good one lacks it as well":         {because: channel.BecauseNewest, wanted: []string{slicesOf2}, good: []string{slicesOf2}},
		"and something more":                         {because: channel.BecauseNewest, wanted: []string{slicesOf2, secretOf2}, good: []string{slicesOf2}, want: []string{secretOf2}},
		"a person pinned it":                         {because: channel.BecausePin, wanted: []string{slicesOf2}},
		"a person overrode with it":                  {because: channel.BecauseOverride, wanted: []string{slicesOf2}},
		"a person pinned what cannot be bound":       {because: channel.BecausePin, wanted: []string{"no source"}, unknown: true, want: []string{"no source"}},
		"only the last good one lacks it, by a role": {because: channel.BecauseNewest, good: []string{slicesOf2}},
	} {
		wanted, good := binding.Prepared{Known: !test.unknown, Lacks: test.wanted}, binding.Prepared{Known: true, Lacks: test.good}
		if got := lacking(wanted, good, test.because); !slices.Equal(got, test.want) {
			t.Errorf("%s: %q, want %q", name, got, test.want)
		}
	}
}

// A failure is not written as a rejection if people named the snapshot again after it was tried, whether or not
// the pusher has seen that.
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

// A pusher that is started with another store keeps what runs if that store does not hold it, since
// the URL may have a misspelled branch. If a person then names a snapshot of that store, the pusher
// rolls it out.
func TestAnotherStore(t *testing.T) {
	t.Parallel()
	good, other := snapshots.ID{Revision: 7, Short: "aaaaaaaaaa"}, snapshots.ID{Revision: 1, Short: "bbbbbbbbbb"}
	copied := snapshots.ID{Revision: 1, Short: good.Short}
	for name, test := range map[string]struct {
		before, now string
		ids         []snapshots.ID
		pin         bool
		unreadable  bool // what runs
		held        bool
	}{
		"the same":                     {"dir:a", "dir:a", []snapshots.ID{other}, false, false, false},
		"another":                      {"dir:a", "dir:b", []snapshots.ID{other}, false, false, true},
		"another with the content":     {"dir:a", "dir:b", []snapshots.ID{copied, {Revision: 2, Short: "bbbbbbbbbb"}}, false, false, false},
		"another, and a pin":           {"dir:a", "dir:b", []snapshots.ID{other}, true, false, false},
		"another, and nobody can tell": {"dir:a", "dir:b", []snapshots.ID{other}, false, true, false},
		"the first":                    {"", "dir:b", []snapshots.ID{other}, false, false, false},
	} {
		m := newMachine(State{Seen: channel.Seen{Store: test.before}}, noon)
		m.state.Rollout.Good = good
		if test.unreadable {
			m.snapshotCache.Due([]snapshots.ID{good}, noon)
			m.snapshotCache.Take(good, snapshots.Snapshot{}, errors.New("not found"), noon)
		}
		view := channel.View{IDs: test.ids, Seen: channel.Seen{Store: test.now}}
		if test.pin {
			view.Channel = view.Channel.Pinned(channel.Pin{Snapshot: other, At: noon})
		}
		m.takeView(view, nil, noon)
		got := m.inKnownStore(decide(m.view, nil, noon), noon)
		_, told := m.troubles["another store"]
		if got.Hold != test.held || (m.state.Seen.Store == test.now) != (!test.held && !test.pin) || told != (test.held || test.pin) {
			t.Errorf("%s: the decision is %+v, remembered is %q, told %v", name, got, m.state.Seen.Store, told)
		}
	}
}
