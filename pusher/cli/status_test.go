package cli

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/hapsnap/hapsnap/pusher/report"
	"github.com/hapsnap/hapsnap/pusher/rollout"
	"github.com/hapsnap/hapsnap/snapshots"
	"github.com/hapsnap/hapsnap/snapshots/bind"
	"github.com/hapsnap/hapsnap/snapshots/configmapstore"
)

func TestDescribeWaits(t *testing.T) {
	now := time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC)
	got := describeWaits([]rollout.Wait{
		{For: "its push", Instance: "a"},
		{For: "reload budget", Instance: "b", Until: now.Add(12 * time.Second)},
		{For: "reload budget", Instance: "c", Until: now.Add(12 * time.Second)},
		{For: "reload budget", Instance: "d", Until: now.Add(time.Minute)},
		{For: "soak", Until: now.Add(-time.Second)},
	}, now)
	want := []string{"its push: a", "reload budget, in 12s: b c", "reload budget, in 1m0s: d", "soak, in 0s"}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("told otherwise (-want +got):\n%s", diff)
	}
}

// A rejection is at the top while it explains why something does not run.
func TestRejectionsOfLongAgoLeaveTheTop(t *testing.T) {
	id := func(text string) snapshots.ID {
		parsed, err := snapshots.ParseID(text)
		if err != nil {
			t.Fatal(err)
		}
		return parsed
	}
	old, newer := id("r000002-aaaaaaaaaa"), id("r000009-bbbbbbbbbb")
	s := report.Status{
		Good:     id("r000005-cccccccccc"),
		Rejected: []rollout.Failure{{Snapshot: old, Reason: "port taken"}, {Snapshot: newer, Reason: "no server is up"}},
		Instances: []report.Instance{
			{Name: "edge-1", Reachable: true, Pending: "servers are being brought up to date"},
		},
	}
	shown := func() string {
		var out strings.Builder
		if err := printStatus(&out, s, time.Now()); err != nil {
			t.Fatal(err)
		}
		return out.String()
	}
	text := shown()
	if !strings.Contains(text, "rejected  r000009-bbbbbbbbbb: no server is up") || strings.Contains(text, "port taken") {
		t.Errorf("the status is\n%s", text)
	}
	if !strings.HasSuffix(text, "\nrejected earlier: r000002-aaaaaaaaaa\n") {
		t.Errorf("the status ends\n%s", text)
	}
	if !strings.Contains(text, "no       servers are being brought up to date") {
		t.Errorf("nothing says what is on its way:\n%s", text)
	}
	s.Channel.Wanted = old // it is pinned
	if text = shown(); !strings.Contains(text, "rejected  r000002-aaaaaaaaaa: port taken") {
		t.Errorf("the rejection of what is wanted is not shown:\n%s", text)
	}
	s.Channel.Wanted, s.Good = snapshots.ID{}, snapshots.ID{}
	if text = shown(); !strings.Contains(text, "port taken") {
		t.Errorf("with nothing good, it is not shown:\n%s", text)
	}
}

// The status says which backends have no server up, why, and since when. It names the first few, and counts the
// others.
func TestStatusOfEmptyBackends(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC)
	many := report.Backends{All: 900, Empty: 300}
	for n := range 100 { // the status lists no more
		many.List = append(many.List, report.EmptyBackend{Backend: fmt.Sprintf("shop_%03d_http", n), Since: now.Add(-time.Hour)})
	}
	for name, test := range map[string]struct {
		backends *report.Backends
		want     string
	}{
		"nothing is known": {nil, ""},
		"all have some":    {&report.Backends{All: 3}, ""},
		"two of three": {&report.Backends{All: 3, Empty: 2, Failing: 1, List: []report.EmptyBackend{
			{Backend: "shop_api_http", Since: now.Add(-90 * time.Second)},
			{Backend: "shop_web_http", Since: now.Add(-2 * time.Hour), Instances: []string{"edge-1", "edge-3"}},
		}}, `empty     2 of 3 backends have no server up
          shop_api_http: no endpoints, for 1m
          shop_web_http: failing checks on edge-1 edge-3, for 2h
`},
		"many": {&many, `empty     300 of 900 backends have no server up
          shop_000_http: no endpoints, for 1h
          shop_001_http: no endpoints, for 1h
          shop_002_http: no endpoints, for 1h
          shop_003_http: no endpoints, for 1h
          shop_004_http: no endpoints, for 1h
          and 295 more
`},
	} {
		var out strings.Builder
		if err := printStatus(&out, report.Status{Updated: now, Backends: test.backends}, now); err != nil {
			t.Fatal(err)
		}
		_, got, _ := strings.Cut(out.String(), "good      none yet\n")
		if got, _, _ = strings.Cut(got, "\nINSTANCE"); got != test.want {
			t.Errorf("%s: the status is\n%s\nwant\n%s", name, got, test.want)
		}
	}
}

func TestStatus(t *testing.T) {
	now := time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC)
	r1, r2 := snapshots.ID{Revision: 1, Short: "aaaaaaaaaa"}, snapshots.ID{Revision: 2, Short: "bbbbbbbbbb"}
	s := report.Status{
		Updated: now.Add(-5 * time.Minute), Stale: true, Good: r1,
		Channel:  report.Channel{Wanted: r2, Message: "r000002-bbbbbbbbbb is the newest"},
		Rollout:  &report.Rollout{Target: r2, Phase: rollout.Pushing, Wave: 1, Members: []string{"a"}},
		Rejected: []rollout.Failure{{Snapshot: r2, Reason: "a: refused:\nport in use"}},
		Troubles: []report.Trouble{{About: "store", Error: "gone", Since: now.Add(-90 * time.Minute)}},
		Instances: []report.Instance{
			{Name: "a", Zone: "east", Reachable: true, Running: r1, InSync: true},
			{Name: "b", Reachable: true, Node: "bootstrap", Error: "first\nsecond"},
			{Name: "c", Since: now.Add(-time.Hour), Error: "connection refused"},
		},
	}
	want := `updated   5m ago: the pusher does not run, or cannot say so; nothing below is newer
wanted    r000002-bbbbbbbbbb is the newest
good      r000001-aaaaaaaaaa
rollout   pushing r000002-bbbbbbbbbb, wave 1: a
rejected  r000002-bbbbbbbbbb: a: refused:
          port in use
trouble   store, for 1h: gone

INSTANCE  ZONE  RUNNING             IN SYNC      ERROR
a         east  r000001-aaaaaaaaaa  yes          -
b         -     (bootstrap)         no           first …
c         -     -                   unreachable  connection refused
`
	var out bytes.Buffer
	if err := printStatus(&out, s, now); err != nil || out.String() != want {
		t.Errorf("printed (%v)\n%s\nwant\n%s", err, out.String(), want)
	}
}

func TestStatusAsJSON(t *testing.T) {
	state := writeState(t, report.Status{Updated: time.Now(), Instances: []report.Instance{{Name: "a", InSync: true}}})
	_, out, _ := pusherCommand(t, "status", "--state", state, "-o", "json")
	var s report.Status
	if err := json.Unmarshal([]byte(out), &s); err != nil || s.InSync() != 1 || s.Rollout != nil {
		t.Errorf("printed %s: %v", out, err)
	}
}

func writeState(t *testing.T, s report.Status) string {
	t.Helper()
	data, err := json.Marshal(map[string]any{"apiVersion": snapshots.APIVersion, "kind": "PusherState", "status": s})
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(t.TempDir(), "state.json")
	if err := os.WriteFile(file, data, 0o600); err != nil {
		t.Fatal(err)
	}
	return file
}

// story is a sequence of statuses, as watch shows them.
func story(t *testing.T) []report.Status {
	t.Helper()
	id := func(text string) snapshots.ID {
		id, err := snapshots.ParseID(text)
		if err != nil {
			t.Fatal(err)
		}
		return id
	}
	one, two := id("r000001-aaaaaaaaaa"), id("r000002-bbbbbbbbbb")
	at := time.Date(2026, 11, 22, 12, 0, 0, 0, time.UTC)
	instance := func(name string, runs snapshots.ID, inSync bool) report.Instance {
		return report.Instance{Name: name, Reachable: true, Running: runs, InSync: inSync}
	}
	done := report.Status{
		Updated: at, Channel: report.Channel{Wanted: one, Message: one.String() + " is the newest"}, Good: one,
		Instances: []report.Instance{instance("a", one, true), instance("b", one, true)},
	}
	begun := done
	begun.Updated = at.Add(time.Second)
	begun.Channel = report.Channel{Wanted: two, Message: two.String() + " is the newest"}
	begun.Rollout = &report.Rollout{Target: two, Phase: rollout.Pushing, Wave: 1, Members: []string{"a"}}
	begun.Rollout.Change = &report.Change{Snapshot: two, From: one, Class: bind.Reload, Old: true, File: snapshots.ConfigFile, Line: 12, Text: "bind :81"}
	begun.Instances = []report.Instance{instance("a", two, true), instance("b", one, false)}
	begun.Troubles = []report.Trouble{{About: "store", Error: "it is gone", Since: at}}
	gone := begun
	gone.Updated, gone.Troubles = at.Add(2*time.Second), nil
	gone.Instances = begun.Instances[:1]
	return []report.Status{done, done, begun, gone}
}

func TestWatchAsLines(t *testing.T) {
	var out bytes.Buffer
	w := &watcher{out: &out}
	for _, s := range story(t) {
		if err := w.show(s, s.Updated); err != nil {
			t.Fatal(err)
		}
	}
	want := `2026-11-22T12:00:00Z wanted: r000001-aaaaaaaaaa is the newest
2026-11-22T12:00:00Z rollout: none, the fleet runs r000001-aaaaaaaaaa
2026-11-22T12:00:00Z a: runs r000001-aaaaaaaaaa, in sync: yes
2026-11-22T12:00:00Z b: runs r000001-aaaaaaaaaa, in sync: yes
2026-11-22T12:00:01Z wanted: r000002-bbbbbbbbbb is the newest
2026-11-22T12:00:01Z rollout: pushing r000002-bbbbbbbbbb, wave 1: a
2026-11-22T12:00:01Z takes: reload: haproxy.cfg:12: -bind :81
2026-11-22T12:00:01Z trouble: store: it is gone
2026-11-22T12:00:01Z a: runs r000002-bbbbbbbbbb, in sync: yes
2026-11-22T12:00:01Z b: runs r000001-aaaaaaaaaa, in sync: no
2026-11-22T12:00:02Z no more trouble: store: it is gone
2026-11-22T12:00:02Z b: left the fleet
`
	if diff := cmp.Diff(want, out.String()); diff != "" {
		t.Errorf("shown otherwise (-want +got):\n%s", diff)
	}
}

func TestWatchAsPage(t *testing.T) {
	var out bytes.Buffer
	w := &watcher{out: &out, page: true}
	s := story(t)
	for _, s := range s[:2] {
		if err := w.show(s, s.Updated); err != nil {
			t.Fatal(err)
		}
	}
	if n := strings.Count(out.String(), "\x1b[H"); n != 2 { // the second draws over the first, which was cleared
		t.Errorf("drawn %d times", n)
	}
	out.Reset()
	if err := w.show(s[1], s[1].Updated); err != nil || out.Len() > 0 {
		t.Errorf("the same is drawn again: %q, %v", &out, err)
	}
	if err := w.show(s[2], s[2].Updated); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"\x1b[H", "pushing r000002-bbbbbbbbbb, wave 1: a\x1b[K\n", "takes     reload: haproxy.cfg:12: -bind :81\x1b[K\n", "[###############...............] 1 of 2 run r000002-bbbbbbbbbb", "\x1b[J"} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("the page lacks %q:\n%s", want, &out)
		}
	}
}

func TestWatchAsJSON(t *testing.T) {
	var out bytes.Buffer
	w := &watcher{out: &out, json: true}
	for _, s := range story(t) {
		if err := w.show(s, s.Updated); err != nil {
			t.Fatal(err)
		}
	}
	if lines := strings.Split(strings.TrimSpace(out.String()), "\n"); len(lines) != 3 || !strings.HasPrefix(lines[1], `{"updated":"2026-11-22T12:00:01Z"`) {
		t.Errorf("%d lines:\n%s", len(lines), &out)
	}
}

// A terminating pod is shown below the instances, and is none of them.
func TestStatusShowsWhatDrains(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC)
	is := func(name string) report.Instance {
		return report.Instance{Name: name, Reachable: true, InSync: true, Running: snapshots.ID{Revision: 1, Short: "0123456789"}}
	}
	both := report.Status{Updated: now, Instances: []report.Instance{is("edge-0"), is("edge-1")}}
	drains := report.Status{Updated: now, Instances: both.Instances[:1], Draining: both.Instances[1:]}
	gone := report.Status{Updated: now, Instances: both.Instances[:1]}
	var out bytes.Buffer
	if err := printStatus(&out, drains, now); err != nil {
		t.Fatal(err)
	}
	table := strings.Split(strings.TrimSpace(out.String()[strings.Index(out.String(), "INSTANCE"):]), "\n")
	if len(table) != 3 || !strings.Contains(table[1], " yes ") || !strings.HasPrefix(table[2], "edge-1 ") || !strings.Contains(table[2], " draining ") {
		t.Errorf("the table is\n%s", strings.Join(table, "\n"))
	}
	for _, c := range []struct {
		old, now report.Status
		want     string
	}{{both, drains, "edge-1: drains"}, {drains, gone, "edge-1: left the fleet"}, {both, gone, "edge-1: left the fleet"}, {drains, drains, ""}} {
		if got := strings.Join(changesOf(c.old, c.now), "; "); got != c.want {
			t.Errorf("it says %q, want %q", got, c.want)
		}
	}
}

// A status that is not written until a person changes something is a trouble of the pusher: who reads the old one takes it for true.
func TestStatusThatAPersonHasToMend(t *testing.T) {
	t.Parallel()
	for hint, err := range map[string]error{
		"--status":           configmapstore.OtherWriterError{By: "another"},
		"pusher rbac prints": fmt.Errorf("%w: forbidden", configmapstore.ErrStatusDenied),
		"":                   errors.New("the API server is away"),
	} {
		got := hintedStatus(fmt.Errorf("write the status: %w", err))
		if _, is := errors.AsType[report.UnwritableError](got); is != (hint != "") || !strings.Contains(got.Error(), hint) {
			t.Errorf("%v became %v", err, got)
		}
	}
}

// What was not asked yet is not called unreachable: a pusher that has just begun would say so of all.
func TestInSyncOfInstances(t *testing.T) {
	t.Parallel()
	at := time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC)
	for _, test := range []struct {
		instance report.Instance
		want     string
	}{
		{report.Instance{}, "not known yet"},
		{report.Instance{Since: at, Error: "connection refused"}, "unreachable"},
		{report.Instance{Since: at, Denied: true}, "wrong credentials"},
		{report.Instance{Since: at, Reachable: true}, "no"},
		{report.Instance{Since: at, Reachable: true, InSync: true}, "yes"},
	} {
		if got := inSync(test.instance); got != test.want {
			t.Errorf("%+v: %s", test.instance, got)
		}
	}
}

// A pusher that answers runs, whatever its clock says. It is stale if its status is old by its own clock.
func TestAskPusherWithAWrongClock(t *testing.T) {
	t.Parallel()
	for _, apart := range []time.Duration{-time.Hour, -time.Minute, 0, time.Hour} {
		for age, stale := range map[time.Duration]bool{time.Second: false, time.Minute: true} {
			server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
				now := time.Now().Add(apart)
				w.Header().Set("Date", now.UTC().Format(http.TimeFormat))
				_ = json.NewEncoder(w).Encode(report.Status{Updated: now.Add(-age), Conditions: []metav1.Condition{{Type: report.TypeReady}}})
			}))
			got, err := askPusher(t.Context(), server.Listener.Addr().String())
			if server.Close(); err != nil || got.Stale != stale {
				t.Errorf("a status of %s ago, by a clock that is %s apart: stale %v, %v", age, apart, got.Stale, err)
			}
		}
	}
}
