package report

import (
	"strings"
	"testing"

	"github.com/hapsnap/hapsnap/pusher/rollout"
	"github.com/hapsnap/hapsnap/snapshots"
	"github.com/hapsnap/hapsnap/snapshots/channel"
)

// The condition is the first of these that applies.
func TestCondition(t *testing.T) {
	t.Parallel()
	old, newest := snapshots.ID{Revision: 4, Short: "0123456789"}, snapshots.ID{Revision: 5, Short: "0123456789"}
	runs := func(ids ...snapshots.ID) []Instance {
		var out []Instance
		for i, id := range ids {
			out = append(out, Instance{Name: "edge-" + string(rune('1'+i)), Reachable: true, Running: id})
		}
		return out
	}
	is := func(id snapshots.ID, because channel.Reason, message string) Channel {
		return Channel{Wanted: id, Because: because, Message: message, Newest: newest}
	}
	wanted := is(newest, channel.BecauseNewest, "")
	hold := func(because channel.Reason, message string) Channel {
		return Channel{Because: because, Hold: true, Message: message, Newest: newest}
	}
	trouble := func(about string) []Trouble { return []Trouble{{About: about, Error: "it is gone"}} }
	unread := []Trouble{{About: AboutSnapshots, Error: "read snapshot r000004-0123456789: it has no signature"}}
	failed := []rollout.Failure{{Snapshot: newest, Reason: "edge-1: refused:\nmore"}}
	sick := runs(newest, newest)
	sick[1].Error = "no route to host"
	for name, c := range map[string]struct {
		status Status
		want   string
	}{
		"all run it":           {Status{Channel: wanted, Instances: runs(newest, newest)}, "Healthy 2 of 2 instances run r000005-0123456789"},
		"servers are updated":  {Status{Channel: wanted, Instances: []Instance{{Name: "a", Reachable: true, Running: newest, Doing: "update"}}}, "Healthy 1 of 1 instances run r000005-0123456789"},
		"one does not yet":     {Status{Channel: wanted, Instances: runs(newest, old)}, "Progressing 1 of 2 instances run r000005-0123456789"},
		"a rollout":            {Status{Channel: wanted, Instances: runs(newest, old), Rollout: &Rollout{Target: newest, Wave: 1, Phase: rollout.Soaking}}, "Progressing r000005-0123456789: 1 of 2 instances, wave 1 is soaking"},
		"nothing known":        {Status{Channel: Channel{Hold: true, Message: NotRead}}, "Progressing the store was not read yet"},
		"nothing published":    {Status{Channel: hold(channel.BecauseEmpty, "the store holds no snapshot")}, "Progressing the store holds no snapshot"},
		"nobody to run it":     {Status{Channel: wanted}, "Progressing there are no instances"},
		"pinned":               {Status{Channel: is(old, channel.BecausePin, "r4 is pinned by ann"), Instances: runs(old, old)}, "Suspended r4 is pinned by ann"},
		"being pinned":         {Status{Channel: is(old, channel.BecausePin, "r4 is pinned"), Instances: runs(old, newest)}, "Progressing 1 of 2 instances run r000004-0123456789"},
		"pinned for it failed": {Status{Channel: is(old, channel.BecausePin, "r4 is pinned"), Instances: runs(old), Rejected: failed}, "Suspended r4 is pinned"},
		"not approved":         {Status{Channel: is(old, channel.BecauseNewest, "r4 is approved"), Instances: runs(old)}, "Suspended r4 is approved"},
		"paused":               {Status{Channel: hold(channel.BecausePause, "paused by ann"), Instances: runs(old)}, "Suspended paused by ann"},
		"the pin is missing":   {Status{Channel: hold(channel.BecausePin, "r3 is pinned, but the store does not hold it"), Instances: runs(old)}, "Degraded r3 is pinned, but the store does not hold it"},
		"it failed":            {Status{Channel: is(old, channel.BecauseNewest, "r4 is the newest that is not rejected"), Instances: runs(old), Rejected: failed}, "Degraded r000005-0123456789 failed: edge-1: refused:"},
		"the first failed":     {Status{Channel: hold(channel.BecauseNone, "r5 failed, and no snapshot is known to be good"), Instances: runs(snapshots.ID{}), Rejected: failed}, "Degraded r000005-0123456789 failed: edge-1: refused:"},
		"another failed":       {Status{Channel: wanted, Instances: runs(newest), Rejected: []rollout.Failure{{Snapshot: old}}}, "Healthy 1 of 1 instances run r000005-0123456789"},
		"an instance is ill":   {Status{Channel: wanted, Instances: sick}, "Degraded edge-2: no route to host"},
		"the store is gone":    {Status{Channel: wanted, Instances: runs(newest), Troubles: trouble("store")}, "Degraded store: it is gone"},
		"the pin is unsigned":  {Status{Channel: is(old, channel.BecausePin, "r4 is pinned"), Instances: runs(newest), Troubles: unread, Rollout: &Rollout{Target: newest, Phase: rollout.Pushing}}, "Degraded read snapshot r000004-0123456789: it has no signature"},
		"another is unsigned":  {Status{Channel: wanted, Instances: runs(old), Troubles: unread}, "Progressing 0 of 1 instances run r000005-0123456789"},
		"all run what is lost": {Status{Channel: is(old, channel.BecausePin, "r4 is pinned"), Instances: runs(old), Troubles: unread}, "Suspended r4 is pinned"},
		"a Secret is gone":     {Status{Channel: wanted, Instances: runs(newest), Troubles: trouble("certificates")}, "Healthy 1 of 1 instances run r000005-0123456789"},
	} {
		got := c.status.Condition()
		if text := string(got.Phase) + " " + got.Message; text != c.want {
			t.Errorf("%s: %s, want %s", name, text, c.want)
		}
	}
}

// A condition is short, however long an error is.
func TestConditionIsShort(t *testing.T) {
	t.Parallel()
	s := Status{Troubles: []Trouble{{About: "store", Error: strings.Repeat("x", 10_000)}}}
	if got := len(s.Condition().Message); got > LongestMessage+3 {
		t.Errorf("it has %d bytes", got)
	}
}
