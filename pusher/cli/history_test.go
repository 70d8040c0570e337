package cli

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/hapsnap/hapsnap/pusher/report"
	"github.com/hapsnap/hapsnap/pusher/rollout"
	"github.com/hapsnap/hapsnap/snapshots"
	"github.com/hapsnap/hapsnap/snapshots/bind"
	"github.com/hapsnap/hapsnap/snapshots/channel"
)

func TestStates(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC)
	id, other := snapshots.ID{Revision: 1, Short: "aaaaaaaaaa"}, snapshots.ID{Revision: 2, Short: "bbbbbbbbbb"}
	digest := snapshots.Digest("sha256:" + strings.Repeat("a", 64))
	none, wanted := channel.Decision{}, channel.Decision{ID: id}
	running := report.Status{Good: id, Instances: []report.Instance{{Running: other}, {Running: id}}}
	rolled := report.Status{Good: other, Rollout: &report.Rollout{Target: id}}
	undone := report.Status{Good: other, Rollout: &report.Rollout{Target: id, Phase: rollout.Undoing}}
	for name, c := range map[string]struct {
		channel channel.Channel
		want    channel.Decision
		status  report.Status
		states  string
	}{
		"nothing":                {channel.Channel{}, none, report.Status{Good: other}, ""},
		"wanted":                 {channel.Channel{}, wanted, report.Status{}, "wanted"},
		"it runs, and is good":   {channel.Channel{}, wanted, running, "wanted, running"},
		"it is rolled out":       {channel.Channel{}, wanted, rolled, "wanted, rollout"},
		"it is undone":           {channel.Channel{}, none, undone, ""},
		"it ran last":            {channel.Channel{}, none, report.Status{Good: id}, "good"},
		"pinned":                 {channel.Channel{}.Pinned(channel.Pin{Snapshot: id}), wanted, running, "pinned, running"},
		"another is pinned":      {channel.Channel{}.Pinned(channel.Pin{Snapshot: other}), none, report.Status{}, ""},
		"overridden":             {channel.Channel{}.Overridden(channel.Override{Snapshot: id, Expires: now.Add(time.Hour)}), wanted, report.Status{}, "overridden"},
		"overridden until today": {channel.Channel{}.Overridden(channel.Override{Snapshot: id, Expires: now}), none, report.Status{}, ""},
		"rejected":               {channel.Channel{}.Reject(channel.Rejection{Snapshot: id, Digest: digest}), none, running, "rejected, running"},
		"not approved":           {channel.Channel{}.WithApproval(true), none, report.Status{}, "waiting"},
		"approved":               {channel.Channel{}.WithApproval(true).Approve(id), wanted, report.Status{}, "wanted"},
	} {
		if got := strings.Join(states(id, c.channel, c.want, c.status, now), ", "); got != c.states {
			t.Errorf("%s: %q, want %q", name, got, c.states)
		}
	}
}

func TestPrintHistoryWithAuthors(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC)
	list := []revision{
		{Snapshot: snapshots.ID{Revision: 2, Short: "bbbbbbbbbb"}, Time: now.Add(-time.Minute), Author: "ann", States: []string{"wanted"}, Subject: "+1 route"},
		{Snapshot: snapshots.ID{Revision: 1, Short: "aaaaaaaaaa"}, States: []string{"unreadable"}, Error: "it is\ndamaged"},
	}
	want := `SNAPSHOT            AGE  AUTHOR  STATE       SUBJECT
r000002-bbbbbbbbbb  1m   ann     wanted      +1 route
r000001-aaaaaaaaaa  -    -       unreadable  it is …
`
	var out strings.Builder
	if err := printHistory(&out, list, now); err != nil || out.String() != want {
		t.Errorf("printed (%v)\n%s\nwant\n%s", err, out.String(), want)
	}
}

func TestPrintHistoryWithChanges(t *testing.T) {
	t.Parallel()
	change := report.Change{From: snapshots.ID{Revision: 1, Short: "aaaaaaaaaa"}, Class: bind.Reload, File: snapshots.ConfigFile, Line: 7, Text: "bind :81"}
	list := []revision{
		{Snapshot: snapshots.ID{Revision: 2, Short: "bbbbbbbbbb"}, Subject: "+1 route", Change: &change},
		{Snapshot: snapshots.ID{Revision: 1, Short: "aaaaaaaaaa"}, Subject: "a start"},
	}
	long := change
	long.Text = strings.Repeat("ü", longestTook)
	list = append(list, revision{Snapshot: snapshots.ID{Revision: 3, Short: "cccccccccc"}, Subject: "long", Change: &long})
	want := `SNAPSHOT            AGE  STATE  TOOK                                                           SUBJECT
r000002-bbbbbbbbbb  -    -      reload: haproxy.cfg:7: +bind :81                               +1 route
r000001-aaaaaaaaaa  -    -      -                                                              a start
r000003-cccccccccc  -    -      reload: haproxy.cfg:7: +` + strings.Repeat("ü", 36) + `…  long
`
	var out strings.Builder
	if err := printHistory(&out, list, time.Time{}); err != nil || out.String() != want {
		t.Errorf("printed (%v)\n%s\nwant\n%s", err, out.String(), want)
	}
}

func TestHistory(t *testing.T) {
	_, url, ids := filledStore(t)
	expect(t, "pinned", "pin", "r2", "--store", url)
	state := writeState(t, report.Status{Updated: time.Now(), Instances: []report.Instance{{Name: "a", Running: ids[1]}}})
	want := "SNAPSHOT            AGE  STATE            SUBJECT\n" +
		ids[2].String() + "  1h   -                the config three\n" +
		ids[1].String() + "  1h   pinned, running  the config two\n" +
		ids[0].String() + "  1h   -                the config one\n"
	if code, out, errs := pusherCommand(t, "history", "--store", url, "--state", state); code != 0 || out != want {
		t.Errorf("exit code %d, printed\n%s%swant\n%s", code, out, errs, want)
	}
	_, out, _ := pusherCommand(t, "history", "--store", url, "-n", "1", "-o", "json")
	var list []revision
	if err := json.Unmarshal([]byte(out), &list); err != nil || len(list) != 1 || list[0].Snapshot != ids[2] {
		t.Errorf("printed %s: %v", out, err)
	}
}
