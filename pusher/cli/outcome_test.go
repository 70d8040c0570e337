package cli

import (
	"strings"
	"testing"
	"time"

	"github.com/hapsnap/hapsnap/internal/process"
	"github.com/hapsnap/hapsnap/pusher/report"
	"github.com/hapsnap/hapsnap/pusher/rollout"
	"github.com/hapsnap/hapsnap/snapshots/channel"
	"github.com/hapsnap/hapsnap/snapshots/dirstore"
)

// change edits the channel of a store, as another person would.
func change(t *testing.T, store *dirstore.Store, edit func(channel.Channel) channel.Channel) {
	t.Helper()
	err := store.UpdateChannel(t.Context(), "a test", time.Now(), func(c *channel.Channel) error {
		*c = edit(*c)
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}

// An act without a meaning fails with the reason, and writes nothing.
func TestActsThatMeanNothing(t *testing.T) {
	t.Parallel()
	store, url, ids := filledStore(t)
	idle := writeState(t, report.Status{Updated: time.Now()})
	rolling := writeState(t, report.Status{Updated: time.Now(), Rollout: &report.Rollout{Target: ids[1], Phase: rollout.Soaking}})
	// Nobody aborted this one: something else is wanted, and what failed before was tried again.
	undoing := writeState(t, report.Status{
		Updated: time.Now(), Rollout: &report.Rollout{Target: ids[1], Phase: rollout.Undoing, Reason: "r1 is wanted again"},
		Rejected: []rollout.Failure{{Snapshot: ids[1], Reason: "too slow"}},
	})
	change(t, store, func(c channel.Channel) channel.Channel {
		return c.Overridden(channel.Override{Snapshot: ids[0], Expires: time.Now().Add(-2 * time.Hour)})
	})
	before, _ := channel.Channel{Spec: channelOf(t, store)}.Marshal()
	for line, want := range map[string]string{
		"unpin":                             "nothing is pinned",
		"resume":                            "nothing is paused",
		"override --end":                    "nothing is overridden: the override with " + ids[0].String() + " ended 2h ago by itself",
		"approve r3":                        "nothing asks for approval",
		"retry":                             "nothing is rejected",
		"retry --fleet west":                "nothing is rejected for fleet west",
		"promote --state " + idle:           "no rollout is under way",
		"abort --state " + idle:             "no rollout is under way",
		"abort --state " + undoing:          "is being undone: r1 is wanted again\n\thint: its snapshot is not rejected; pusher reject " + ids[1].String(),
		"promote --state " + undoing:        "is being undone: r1 is wanted again",
		"abort r3 --state " + rolling:       "no rollout of " + ids[2].String() + " is under way, but of " + ids[1].String(),
		"confirm-endpoints --state " + idle: "the pusher keeps no missing endpoints",
	} {
		code, out, errs := pusherCommand(t, append(strings.Fields(line), "--store", url)...)
		if code != process.ExitFailure || out != "" || !strings.Contains(errs, want) {
			t.Errorf("%s: exit code %d, printed %s%s, want %q", line, code, out, errs, want)
		}
	}
	if after, _ := (channel.Channel{Spec: channelOf(t, store)}).Marshal(); string(after) != string(before) {
		t.Errorf("the channel is\n%s\nand was\n%s", after, before)
	}
}

// Repeating an act succeeds and changes nothing, not even its author.
func TestActsThatAreRepeated(t *testing.T) {
	t.Parallel()
	store, url, ids := filledStore(t)
	undoing := writeState(t, report.Status{
		Updated: time.Now(), Rollout: &report.Rollout{Target: ids[1], Phase: rollout.Undoing, Reason: "aborted"},
		Rejected: []rollout.Failure{{Snapshot: ids[1], Reason: "aborted"}},
	})
	change(t, store, func(c channel.Channel) channel.Channel { return c.WithApproval(true).Approve(ids[2]) })
	for _, line := range []string{"pin r1", "pause", "approve r2", "reject r3", "rollback --to r1", "confirm-endpoints 3f9a"} {
		if strings.HasPrefix(line, "rollback") {
			pusherCommand(t, "resume", "--store", url)
			pusherCommand(t, "pin", "r2", "--store", url)
		}
		args := append(strings.Fields(line), "--store", url)
		if code, _, errs := pusherCommand(t, append(args, "--by", "ann")...); code != process.ExitOK {
			t.Errorf("%s: exit code %d: %s", line, code, errs)
		}
		before := channelOf(t, store)
		if strings.HasPrefix(line, "rollback") {
			args[0], args[1], args[2] = "pin", "r1", "--cache-dir=x"
		}
		if done := changeOf(t, append(args, "--by", "bob")...); done.Changed || !strings.Contains(done.Done, "already") {
			t.Errorf("%s again: %+v", line, done)
		}
		a, _ := channel.Channel{Spec: before}.Marshal()
		if b, _ := (channel.Channel{Spec: channelOf(t, store)}).Marshal(); string(a) != string(b) {
			t.Errorf("%s again: the channel is\n%s\nand was\n%s", line, b, a)
		}
	}
	if done := changeOf(t, "abort", "--store", url, "--state", undoing); done.Changed || done.Done != ids[1].String()+" is aborted already" {
		t.Errorf("abort of what is being undone: %+v", done)
	}
	if done := changeOf(t, "pin", "r1", "--store", url, "--reason", "another"); !done.Changed || channelOf(t, store).Pin.Reason != "another" {
		t.Errorf("a reason that is new is not kept: %+v", done)
	}
}

// The next act removes what has no effect any more from the channel, and reports it.
func TestStaleOrdersLeaveTheChannel(t *testing.T) {
	t.Parallel()
	store, url, ids := filledStore(t)
	gone := ids[0]
	change(t, store, func(c channel.Channel) channel.Channel {
		c = c.Overridden(channel.Override{Snapshot: ids[1], Expires: time.Now().Add(-time.Hour)}).Approve(gone).Approve(ids[2])
		return c.Promoted(channel.Order{Snapshot: ids[1], At: time.Now().Add(-time.Hour)}).Aborted(channel.Order{Snapshot: gone})
	})
	if err := store.Delete(t.Context(), gone); err != nil {
		t.Fatal(err)
	}
	done := changeOf(t, "pause", "--store", url)
	if spec := channelOf(t, store); spec.Override != nil || spec.Abort != nil || len(spec.Approved) != 1 || spec.Promote == nil {
		t.Errorf("the channel is %+v", spec)
	}
	if len(done.Tidied) != 3 || !strings.Contains(strings.Join(done.Tidied, "\n"), "the approval of "+gone.String()+": the store no longer holds it") {
		t.Errorf("said %q", done.Tidied)
	}
	// Only a pusher knows that a rollout has ended.
	state := writeState(t, report.Status{Updated: time.Now(), Rollout: &report.Rollout{Target: ids[2], Phase: rollout.Soaking}})
	done = changeOf(t, "abort", "--store", url, "--state", state)
	if spec := channelOf(t, store); spec.Promote != nil || spec.Abort == nil || len(done.Tidied) != 1 {
		t.Errorf("the channel is %+v, said %q", spec, done.Tidied)
	}
}
