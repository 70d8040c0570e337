package cli

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/hapsnap/hapsnap/internal/process"
	"github.com/hapsnap/hapsnap/pusher/report"
	"github.com/hapsnap/hapsnap/pusher/rollout"
	"github.com/hapsnap/hapsnap/snapshots"
	"github.com/hapsnap/hapsnap/snapshots/channel"
	"github.com/hapsnap/hapsnap/snapshots/dirstore"
	"github.com/hapsnap/hapsnap/snapshots/stores"
)

// changeOf runs a verb that changes a channel, and reads what it prints as JSON.
func changeOf(t *testing.T, args ...string) channelChange {
	t.Helper()
	code, out, errs := pusherCommand(t, append(args, "-o", "json")...)
	var done channelChange
	if err := json.Unmarshal([]byte(out), &done); err != nil || code != process.ExitOK {
		t.Fatalf("pusher %s: exit code %d, %v\n%s%s", strings.Join(args, " "), code, err, out, errs)
	}
	return done
}

// All verbs that change the channel print the same fields: the state before and after, the author, and whether
// anything is new.
func TestChannelChangesAsJSON(t *testing.T) {
	t.Parallel()
	store, url, ids := filledStore(t)
	for _, step := range []struct {
		args    string
		changed bool
		before  snapshots.ID
		after   snapshots.ID
		because channel.Reason
		subject string
	}{
		{"pin r1", true, ids[2], ids[0], channel.BecausePin, "pin " + ids[0].String() + ": a test"},
		{"unpin", true, ids[0], ids[2], channel.BecauseNewest, "unpin " + ids[0].String() + ": a test"},
		{"override r2 --for 1h", true, ids[2], ids[1], channel.BecauseOverride, "override with " + ids[1].String() + " for 1h0m0s: a test"},
		{"pin r1", true, ids[1], ids[1], channel.BecauseOverride, "pin " + ids[0].String() + ": a test"},
		{"override --end", true, ids[1], ids[0], channel.BecausePin, "end the override with " + ids[1].String() + ": a test"},
		{"unpin", true, ids[0], ids[2], channel.BecauseNewest, "unpin " + ids[0].String() + ": a test"},
		{"pause", true, ids[2], snapshots.ID{}, channel.BecausePause, "pause: a test"},
		{"resume", true, snapshots.ID{}, ids[2], channel.BecauseNewest, "resume: a test"},
		{"reject r3", true, ids[2], ids[1], channel.BecauseNewest, "reject " + ids[2].String() + ": a test"},
		{"retry r3", true, ids[1], ids[2], channel.BecauseNewest, "retry " + ids[2].String() + ": a test"},
		{"pin r1", true, ids[2], ids[0], channel.BecausePin, "pin " + ids[0].String() + ": a test"},
		{"pin r1", false, ids[0], ids[0], channel.BecausePin, ""},
		{"unpin", true, ids[0], ids[2], channel.BecauseNewest, "unpin " + ids[0].String() + ": a test"},
		{"promote r3", true, ids[2], ids[2], channel.BecauseNewest, "promote " + ids[2].String() + ": a test"},
		{"promote --full", true, ids[2], ids[2], channel.BecauseNewest, "promote in full " + ids[2].String() + ": a test"},
		{"abort", true, ids[2], ids[2], channel.BecauseNewest, "abort " + ids[2].String() + ": a test"},
		{"rollback", true, ids[2], ids[1], channel.BecausePin, "roll back to " + ids[1].String() + ": a test"},
	} {
		before := channelOf(t, store)
		done := changeOf(t, append(strings.Fields(step.args), "--store", url, "--by", "ann", "--reason", "a test")...)
		if done.Changed != step.changed || done.Before.Wanted != step.before || done.After.Wanted != step.after || done.After.Because != step.because ||
			done.Subject != step.subject || done.By != "ann" || done.Reason != "a test" || done.Done == "" || done.Message == "" {
			t.Errorf("%s: %+v", step.args, done)
		}
		for _, c := range []struct{ said, is channel.Spec }{{done.Before.Channel, before}, {done.After.Channel, channelOf(t, store)}} {
			said, _ := channel.Channel{Spec: c.said}.Marshal()
			is, _ := channel.Channel{Spec: c.is}.Marshal()
			if !bytes.Equal(said, is) {
				t.Errorf("%s: said\n%s\nbut it is\n%s", step.args, said, is)
			}
		}
	}
}

func TestOverride(t *testing.T) {
	t.Parallel()
	store, url, ids := filledStore(t)
	expect(t, "\n"+ids[0].String()+" is wanted now, in place of "+ids[2].String()+"\n", "override", "r1", "--for", "90m", "--store", url, "--by", "ann")
	if o := channelOf(t, store).Override; o == nil || o.Snapshot != ids[0] || o.By != "ann" || time.Until(o.Expires) > 90*time.Minute || time.Until(o.Expires) < 89*time.Minute {
		t.Errorf("the override is %+v", o)
	}
	expect(t, ids[2].String()+" is wanted now, in place of "+ids[0].String()+": it is the newest", "override", "--end", "--store", url)
	for said, args := range map[string][]string{
		"use --for to say":         {"override", "r1"},
		"name a snapshot":          {"override", "--for", "1h"},
		"would be in the past":     {"override", "r1", "--for", "-1h"},
		"--end stands alone":       {"override", "r1", "--end"},
		"holds no snapshot r9":     {"override", "r9", "--for", "1h"},
		`invalid argument "often"`: {"override", "r1", "--for", "often"},
	} {
		if code, _, errs := pusherCommand(t, append(args, "--store", url)...); code != process.ExitUsage || !strings.Contains(errs, said) {
			t.Errorf("%v: exit code %d, said %s", args, code, errs)
		}
	}
}

// managedStore is a store whose channel another tool manages.
type managedStore struct {
	*dirstore.Store
	manager string
	err     error
}

func (s managedStore) ChannelManager(context.Context) (string, error) { return s.manager, s.err }

func TestChangeThatWillBeUndone(t *testing.T) {
	t.Parallel()
	store, _, ids := filledStore(t)
	pin := func(s stores.Store) (channelChange, error) {
		var f channelFlags
		return f.change(t.Context(), s, time.Now(), func(_ channel.View, c *channel.Channel) (act, error) {
			*c = c.Approve(ids[len(c.Spec.Approved)])
			return act{verb: channel.VerbApprove, subject: "approve"}, nil
		})
	}
	done, err := pin(managedStore{store, "Argo CD (application edge)", nil})
	if err != nil || done.Reverted != "Argo CD (application edge)" {
		t.Errorf("%+v, %v", done, err)
	}
	var said bytes.Buffer
	done.warn(&said)
	if want := "warning: Argo CD (application edge) manages the channel, and will undo this\n\thint: "; !strings.HasPrefix(said.String(), want) {
		t.Errorf("said %q", said.String())
	}
	no := errors.New("no")
	if _, err := pin(managedStore{store, "", no}); !errors.Is(err, no) {
		t.Error(err)
	}
	if done, err := pin(store); err != nil || done.Reverted != "" {
		t.Errorf("%+v, %v", done, err)
	}
	if !slices.Equal(channelOf(t, store).Approved, ids[:2]) { // nothing changes if it is not known what manages the channel
		t.Errorf("approved are %v", channelOf(t, store).Approved)
	}
}

// Every verb that prints something can print it as JSON, in one form.
func TestEveryVerbPrintsJSON(t *testing.T) {
	t.Parallel()
	for _, cmd := range NewCommand().Commands() {
		if slices.Contains([]string{"run", "rbac", "ui", "version", "completion", "help"}, cmd.Name()) {
			continue
		}
		if flag := cmd.Flags().Lookup("output"); flag == nil || flag.Shorthand != "o" {
			t.Errorf("pusher %s has no -o", cmd.Name())
		}
	}
}

func TestApprove(t *testing.T) {
	t.Parallel()
	store, url, ids := filledStore(t)
	err := store.UpdateChannel(t.Context(), "ask for approval", time.Now(), func(c *channel.Channel) error {
		*c = c.WithApproval(true)
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	expect(t, ids[0].String()+" approved by carol\n"+ids[0].String()+" is wanted now: it is the newest that is approved (2 waiting for approval)\n", "approve", "r1", "--store", url, "--by", "carol")
	expect(t, ids[2].String()+" approved by carol\n"+ids[2].String()+" is wanted now, in place of "+ids[0].String()+": it is the newest\n", "approve", "r3", "--store", url, "--by", "carol")
	expect(t, ids[1].String()+" approved by carol\n"+ids[2].String()+" stays wanted: it is newer\n", "approve", "r2", "--store", url, "--by", "carol")
	expect(t, ids[1].String()+" is approved already\n", "approve", "r2", "--store", url, "--by", "bob")
	if code, _, errs := pusherCommand(t, "approve", "r4", "--store", url); code != process.ExitUsage || !strings.Contains(errs, "holds no snapshot r4") {
		t.Errorf("exit code %d, said %s", code, errs)
	}
	if approved := channelOf(t, store).Approved; len(approved) != 3 {
		t.Errorf("approved are %v", approved)
	}
}

func TestReject(t *testing.T) {
	t.Parallel()
	store, url, ids := filledStore(t)
	expect(t, ids[1].String()+" is wanted now, in place of "+ids[2].String()+": it is the newest that is not rejected (1 rejected)\n", "reject", "r3", "--store", url, "--reason", "it is slow")
	if r := channelOf(t, store).Rejected; len(r) != 1 || r[0].Snapshot != ids[2] || r[0].Reason != "it is slow" || r[0].At.IsZero() {
		t.Errorf("rejected are %+v", r)
	}
	expect(t, ids[2].String()+" is wanted now, in place of "+ids[1].String()+": it is the newest\n", "retry", "r3", "--store", url)
	expect(t, "pinned", "pin", "r2", "--store", url, "--by", "me")
	expect(t, ids[1].String()+" is pinned by me, but was rejected: by bob\n", "reject", "r2", "--store", url, "--by", "bob")
}

// An order is about the rollout in the state file, else about the named snapshot, or the one that should run.
func TestOrders(t *testing.T) {
	t.Parallel()
	store, url, ids := filledStore(t)
	idle := writeState(t, report.Status{})
	rolling := writeState(t, report.Status{Rollout: &report.Rollout{Target: ids[1], Phase: rollout.Soaking}})

	expect(t, "the rollout of "+ids[2].String()+" goes on to its next wave at once", "promote", "--store", url, "--by", "ann")
	if o := channelOf(t, store).Promote; o == nil || o.Snapshot != ids[2] || o.By != "ann" || o.Full || o.At.IsZero() {
		t.Errorf("the promotion is %+v", o)
	}
	expect(t, "goes on to all that remain at once", "promote", "--full", "--store", url, "--state", rolling)
	if o := channelOf(t, store).Promote; o == nil || o.Snapshot != ids[1] || !o.Full {
		t.Errorf("the promotion is %+v", o)
	}
	expect(t, "the rollout of "+ids[0].String()+" is undone and rejected", "abort", "r1", "--store", url, "--reason", "errors")
	if o := channelOf(t, store).Abort; o == nil || o.Snapshot != ids[0] || o.Reason != "errors" {
		t.Errorf("the abort is %+v", o)
	}
	for said, args := range map[string]string{
		"no rollout is under way":                                    "abort --state " + idle,
		"no rollout of " + ids[2].String() + " is under way, but of": "promote r3 --state " + rolling,
		"there is no state file":                                     "abort --state " + idle + ".none",
		"the store holds no snapshot r9":                             "abort r9",
	} {
		code, _, errs := pusherCommand(t, append(strings.Fields(args), "--store", url)...)
		if code == process.ExitOK || !strings.Contains(errs, said) {
			t.Errorf("%s: exit code %d, said %s", args, code, errs)
		}
	}
	expect(t, "paused", "pause", "--store", url)
	if code, _, errs := pusherCommand(t, "abort", "--store", url); code != process.ExitUsage || !strings.Contains(errs, "cannot tell which rollout you mean: paused") {
		t.Errorf("exit code %d, said %s", code, errs)
	}
}

func TestRollback(t *testing.T) {
	t.Parallel()
	store, url, ids := filledStore(t)
	code, out, errs := pusherCommand(t, "rollback", "--store", url, "--by", "ann")
	want := ids[1].String() + " pinned by ann: rolled back from " + ids[2].String() + "\n" +
		ids[1].String() + " is wanted now, in place of " + ids[2].String() + "\n\tto go forward again: pusher unpin --store " + url + "\n"
	if code != process.ExitOK || out != want {
		t.Errorf("exit code %d, printed %s%s, want %s", code, out, errs, want)
	}
	code, out, _ = pusherCommand(t, "rollback", "--store", url, "--reason", "the sale is off", "-o", "json")
	var done rolledBack
	if err := json.Unmarshal([]byte(out), &done); err != nil || code != process.ExitOK || done.From != ids[1] || done.To != ids[0] || done.Undo != "pusher unpin --store "+url {
		t.Errorf("exit code %d, printed %s: %v", code, out, err)
	}
	if pin := channelOf(t, store).Pin; pin == nil || pin.Snapshot != ids[0] || pin.Reason != "the sale is off" || pin.At.IsZero() {
		t.Errorf("the pin is %+v", pin)
	}
	if code, _, errs := pusherCommand(t, "rollback", "--store", url); code != process.ExitFailure || !strings.Contains(errs, "there is nothing to roll back to: the store holds nothing older than "+ids[0].String()) {
		t.Errorf("exit code %d, said %s", code, errs)
	}
	for _, c := range []struct{ said, to string }{
		{ids[1].String() + " is not older than " + ids[0].String(), "r2"},
		{ids[0].String() + " is not older than " + ids[0].String(), "r1"},
		{"holds no snapshot r7", "r7"},
	} {
		if code, _, errs := pusherCommand(t, "rollback", "--store", url, "--to", c.to); code != process.ExitUsage || !strings.Contains(errs, c.said) {
			t.Errorf("to %q: exit code %d, said %s", c.to, code, errs)
		}
	}
	expect(t, ids[0].String()+" unpinned by ann\n"+ids[2].String()+" is wanted now, in place of "+ids[0].String()+": it is the newest\n", "unpin", "--store", url, "--by", "ann")
	expect(t, ids[0].String()+" pinned", "rollback", "--store", url, "--to", "r1")
}

// A rollback goes to the snapshot that the fleet ran last, even if there are others in between.
func TestRollbackToWhatTheFleetRan(t *testing.T) {
	t.Parallel()
	_, url, ids := filledStore(t)
	state := writeState(t, report.Status{Updated: time.Now(), Good: ids[0]})
	expect(t, ids[0].String()+" pinned", "rollback", "--store", url, "--state", state)
}

func channelOf(t *testing.T, store *dirstore.Store) channel.Spec {
	t.Helper()
	view, err := store.View(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return view.Channel.Spec
}

func TestPinUnpinPauseResume(t *testing.T) {
	store, url, ids := filledStore(t)
	expect(t, ids[0].String()+" pinned by me: the sale is off\n"+ids[0].String()+" is wanted now, in place of "+ids[2].String()+"\n", "pin", "r1", "--store", url, "--by", "me", "--reason", "the sale is off")
	if pin := channelOf(t, store).Pin; pin == nil || pin.Snapshot != ids[0] || pin.Reason != "the sale is off" || pin.At.IsZero() {
		t.Errorf("the pin is %+v", pin)
	}
	expect(t, "pinned", "pin", ids[1].String(), "--store", url)
	expect(t, "it is the newest", "unpin", "--store", url)
	expect(t, "paused by me", "pause", "--store", url, "--by", "me")
	paused := "paused by me; until somebody resumes, every instance keeps what it runs\n"
	expect(t, "takes nothing while it is paused\n", "pin", "r1", "--store", url, "--dry-run")
	expect(t, paused, "pin", "r1", "--store", url)
	expect(t, paused, "unpin", "--store", url)
	expect(t, "is the newest", "resume", "--store", url)
	expect(t, "\ntakes nothing where "+ids[2].String()+" runs\n", "pin", "r3", "--store", url, "--dry-run")
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
		edit := func(c *channel.Channel) error {
			*c = c.Reject(channel.Rejection{Digest: s.Manifest.Spec.Digest, Snapshot: id})
			return nil
		}
		if err := store.UpdateChannel(t.Context(), "reject", time.Now(), edit); err != nil {
			t.Fatal(err)
		}
	}
	if code, _, errs := pusherCommand(t, "retry", "--store", url); code != process.ExitFailure || !strings.Contains(errs, "nothing is rejected") {
		t.Errorf("exit code %d: %s", code, errs)
	}
	reject(ids[2])
	expect(t, "it is the newest", "retry", "--store", url)
	reject(ids[1])
	reject(ids[2])
	if code, _, errs := pusherCommand(t, "retry", "--store", url); code != process.ExitUsage || !strings.Contains(errs, ids[1].String()+", "+ids[2].String()) {
		t.Errorf("exit code %d: %s", code, errs)
	}
	if code, _, errs := pusherCommand(t, "retry", "r1", "--store", url); code != process.ExitFailure || !strings.Contains(errs, "is not rejected") {
		t.Errorf("exit code %d: %s", code, errs)
	}
	expect(t, "it is the newest", "retry", "r3", "--store", url)
	if rejected := channelOf(t, store).Rejected; len(rejected) != 1 || rejected[0].Snapshot != ids[1] {
		t.Errorf("rejected are %+v", rejected)
	}
}
