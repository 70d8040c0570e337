package cli

import (
	"bytes"
	"context"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/hapsnap/hapsnap/internal/process"
	"github.com/hapsnap/hapsnap/pusher"
	"github.com/hapsnap/hapsnap/pusher/rollout"
	"github.com/hapsnap/hapsnap/snapshots"
	"github.com/hapsnap/hapsnap/snapshots/dirstore"
)

// pusherCommand runs a command line and returns its exit code and what it printed.
func pusherCommand(t *testing.T, args ...string) (code int, stdout, stderr string) {
	t.Helper()
	var out, errs bytes.Buffer
	root := NewCommand()
	root.SetArgs(args)
	root.SetOut(&out)
	root.SetErr(&errs)
	code = process.Main(root)
	return code, out.String(), errs.String()
}

// expect runs a command line that succeeds, and checks a part of what it prints.
func expect(t *testing.T, part string, args ...string) {
	t.Helper()
	if code, out, errs := pusherCommand(t, args...); code != process.ExitOK || !strings.Contains(out, part) {
		t.Errorf("pusher %s: exit code %d\n%s%s", strings.Join(args, " "), code, out, errs)
	}
}

// filledStore is a store with three snapshots.
func filledStore(t *testing.T) (store *dirstore.Store, url string, ids []snapshots.ID) {
	t.Helper()
	path := filepath.Join(t.TempDir(), "store")
	store = dirstore.Open(path, dirstore.Options{})
	for _, text := range []string{"one", "two", "three"} {
		id, _, err := store.Publish(t.Context(), snapshots.Draft{
			Files:   []snapshots.File{{Path: snapshots.ConfigFile, Content: []byte("# " + text + "\n")}},
			Subject: "the config " + text, Time: time.Now().Add(-time.Hour),
		})
		if err != nil {
			t.Fatal(err)
		}
		ids = append(ids, id)
	}
	return store, "dir:" + path, ids
}

func channelOf(t *testing.T, store *dirstore.Store) snapshots.ChannelSpec {
	t.Helper()
	view, err := store.View(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return view.Channel.Spec
}

func TestPinUnpinPauseResume(t *testing.T) {
	store, url, ids := filledStore(t)
	expect(t, ids[0].String()+" is pinned by me: the sale is off", "pin", "r1", "--store", url, "--by", "me", "--reason", "the sale is off")
	if pin := channelOf(t, store).Pin; pin == nil || pin.Snapshot != ids[0] || pin.Reason != "the sale is off" || pin.At.IsZero() {
		t.Errorf("the pin is %+v", pin)
	}
	expect(t, "pinned", "pin", ids[1].String(), "--store", url)
	expect(t, ids[2].String()+" is the newest", "unpin", "--store", url)
	expect(t, "nothing is pinned", "unpin", "--store", url)
	expect(t, "paused by me", "pause", "--store", url, "--by", "me")
	expect(t, "is the newest", "resume", "--store", url)
	expect(t, "nothing is paused", "resume", "--store", url)
	if spec := channelOf(t, store); spec.Pin != nil || spec.Pause != nil {
		t.Errorf("the channel is %+v", spec)
	}
}

func TestRetry(t *testing.T) {
	store, url, ids := filledStore(t)
	reject := func(id snapshots.ID) {
		s, err := store.Get(t.Context(), id)
		if err != nil {
			t.Fatal(err)
		}
		edit := func(c *snapshots.Channel) error {
			*c = c.Reject(snapshots.Rejection{Digest: s.Manifest.Spec.Digest, Snapshot: id})
			return nil
		}
		if err := store.UpdateChannel(t.Context(), "reject", time.Now(), edit); err != nil {
			t.Fatal(err)
		}
	}
	if code, _, errs := pusherCommand(t, "retry", "--store", url); code != process.ExitUsage || !strings.Contains(errs, "0 snapshots are rejected") {
		t.Errorf("exit code %d: %s", code, errs)
	}
	reject(ids[2])
	expect(t, ids[2].String()+" is the newest", "retry", "--store", url)
	reject(ids[1])
	reject(ids[2])
	if code, _, errs := pusherCommand(t, "retry", "--store", url); code != process.ExitUsage || !strings.Contains(errs, ids[1].String()+", "+ids[2].String()) {
		t.Errorf("exit code %d: %s", code, errs)
	}
	if code, _, errs := pusherCommand(t, "retry", "r1", "--store", url); code != process.ExitUsage || !strings.Contains(errs, "is not rejected") {
		t.Errorf("exit code %d: %s", code, errs)
	}
	expect(t, ids[2].String()+" is the newest", "retry", "r3", "--store", url)
	if rejected := channelOf(t, store).Rejected; len(rejected) != 1 || rejected[0].Snapshot != ids[1] {
		t.Errorf("rejected are %+v", rejected)
	}
}

func TestHistory(t *testing.T) {
	_, url, ids := filledStore(t)
	expect(t, "pinned", "pin", "r2", "--store", url)
	state := writeState(t, pusher.Status{Updated: time.Now(), Instances: []pusher.InstanceStatus{{Name: "a", Running: ids[1]}}})
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

func writeState(t *testing.T, s pusher.Status) string {
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

func TestStatus(t *testing.T) {
	now := time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC)
	r1, r2 := snapshots.ID{Revision: 1, Short: "aaaaaaaaaa"}, snapshots.ID{Revision: 2, Short: "bbbbbbbbbb"}
	s := pusher.Status{
		Updated: now.Add(-5 * time.Minute), Good: r1,
		Channel:  pusher.ChannelStatus{Wanted: r2, Message: "r000002-bbbbbbbbbb is the newest"},
		Rollout:  &pusher.RolloutStatus{Target: r2, Phase: rollout.Pushing, Wave: 1, Members: []string{"a"}},
		Rejected: []rollout.Failure{{Snapshot: r2, Reason: "a: refused:\nport in use"}},
		Troubles: []pusher.Trouble{{About: "store", Error: "gone", Since: now.Add(-90 * time.Minute)}},
		Instances: []pusher.InstanceStatus{
			{Name: "a", Zone: "east", Reachable: true, Running: r1, InSync: true},
			{Name: "b", Reachable: true, Node: "bootstrap", Error: "first\nsecond"},
			{Name: "c", Error: "connection refused"},
		},
	}
	want := `updated   5m ago: the pusher does not run
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
	state := writeState(t, pusher.Status{Updated: time.Now(), Instances: []pusher.InstanceStatus{{Name: "a", InSync: true}}})
	_, out, _ := pusherCommand(t, "status", "--state", state, "-o", "json")
	var s pusher.Status
	if err := json.Unmarshal([]byte(out), &s); err != nil || s.InSync() != 1 || s.Rollout != nil {
		t.Errorf("printed %s: %v", out, err)
	}
}

func TestExitCodes(t *testing.T) {
	_, url, _ := filledStore(t)
	fleet := filepath.Join(t.TempDir(), "fleet.yaml")
	if err := os.WriteFile(fleet, []byte("apiVersion: hapsnap.dev/v1alpha1\nkind: Fleet\nmetadata: {name: edge}\nspec:\n  instances:\n  - {name: a}\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	state := filepath.Join(t.TempDir(), "state.json")
	tests := map[string]struct {
		args []string
		code int
		said string
	}{
		"no store":        {[]string{"pin", "r1"}, process.ExitUsage, "no store is named"},
		"unknown scheme":  {[]string{"pin", "r1", "--store", "s3:x"}, process.ExitUsage, "unknown scheme"},
		"no snapshot":     {[]string{"pin", "r9", "--store", url}, process.ExitUsage, "the store holds no snapshot r9"},
		"store not there": {[]string{"history", "--store", "dir:" + state}, process.ExitFailure, "no such file"},
		"no state":        {[]string{"status", "--state", state}, process.ExitFailure, "there is no state file"},
		"output":          {[]string{"history", "--store", url, "-o", "xml"}, process.ExitUsage, "want text or json"},
		"run without":     {[]string{"run"}, process.ExitUsage, "--store is missing"},
		"waves":           {[]string{"run", "--store", url, "--instances", fleet, "--state", state, "--waves", "some"}, process.ExitUsage, "--waves: "},
		"no secret":       {[]string{"run", "--store", url, "--instances", fleet, "--state", "secret:edge"}, process.ExitUsage, `--state: "secret:edge" is not secret:NAMESPACE/NAME`},
		"lease of a file": {[]string{"run", "--store", url, "--instances", fleet, "--state", state, "--lease", "edge/pusher"}, process.ExitUsage, "--lease is for a state that several pushers share"},
		"lease times":     {[]string{"run", "--store", url, "--instances", fleet, "--state", "secret:edge/pusher", "--renew-deadline", "1h"}, process.ExitUsage, "not shorter than the lease duration"},
		"no cluster":      {[]string{"status", "--state", "secret:edge/pusher"}, process.ExitFailure, "name a kubeconfig file with --kubeconfig"},
		"poll interval":   {[]string{"run", "--store", url, "--instances", fleet, "--state", state, "--poll-interval", "0s"}, process.ExitUsage, "--poll-interval=0s"},
		"fleet":           {[]string{"run", "--store", url, "--instances", fleet, "--state", state}, process.ExitInvalid, "fleet.yaml:6:5: Fleet: instance a has no usable url"},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			if code, _, errs := pusherCommand(t, test.args...); code != test.code || !strings.Contains(errs, test.said) {
				t.Errorf("exit code %d, said %s", code, errs)
			}
		})
	}
}

// The pusher serves its health, metrics and status, and stops when it is asked to.
func TestServe(t *testing.T) {
	_, url, _ := filledStore(t)
	dir := t.TempDir()
	fleet := filepath.Join(dir, "fleet.yaml")
	if err := os.WriteFile(fleet, []byte("apiVersion: hapsnap.dev/v1alpha1\nkind: Fleet\nmetadata: {name: edge}\nspec:\n  instances: []\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(t.Context())
	root := NewCommand()
	root.SetArgs([]string{"run", "--store", url, "--instances", fleet, "--state", filepath.Join(dir, "state.json"), "--metrics-address", "127.0.0.1:0", "--log-format", "json"})
	log := newLog()
	root.SetErr(log)
	done := make(chan error, 1)
	go func() { done <- root.ExecuteContext(ctx) }()
	address := log.address(t)
	get(t, "http://"+address+"/readyz", "ok")
	get(t, "http://"+address+"/healthz", "ok")
	get(t, "http://"+address+"/metrics", "hapsnap_pusher_instances_in_sync 0")
	get(t, "http://"+address+"/status", `"message":"r000003-`)
	stop()
	if err := <-done; err != nil {
		t.Errorf("it ended with: %v", err)
	}
}
