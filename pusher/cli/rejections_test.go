package cli

import (
	"strings"
	"testing"
	"time"

	"github.com/hapsnap/hapsnap/pusher"
	"github.com/hapsnap/hapsnap/pusher/rollout"
	"github.com/hapsnap/hapsnap/snapshots"
)

// A rejection is on top while it says why something does not run.
func TestRejectionsOfLongAgoLeaveTheTop(t *testing.T) {
	id := func(text string) snapshots.ID {
		parsed, err := snapshots.ParseID(text)
		if err != nil {
			t.Fatal(err)
		}
		return parsed
	}
	old, newer := id("r000002-aaaaaaaaaa"), id("r000009-bbbbbbbbbb")
	s := pusher.Status{
		Good:     id("r000005-cccccccccc"),
		Rejected: []rollout.Failure{{Snapshot: old, Reason: "port taken"}, {Snapshot: newer, Reason: "no server is up"}},
		Instances: []pusher.InstanceStatus{
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
