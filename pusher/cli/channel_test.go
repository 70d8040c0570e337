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
	"github.com/hapsnap/hapsnap/snapshots"
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

// All verbs that change the channel print the same shape: what was, what is, who did
// it, and whether anything is new.
func TestChannelChangesAsJSON(t *testing.T) {
	t.Parallel()
	store, url, ids := filledStore(t)
	for _, step := range []struct {
		args    string
		changed bool
		before  snapshots.ID
		after   snapshots.ID
		because snapshots.Reason
		subject string
	}{
		{"pin r1", true, ids[2], ids[0], snapshots.BecausePin, "pin " + ids[0].String() + ": a test"},
		{"unpin", true, ids[0], ids[2], snapshots.BecauseNewest, "unpin " + ids[0].String() + ": a test"},
		{"unpin", false, ids[2], ids[2], snapshots.BecauseNewest, ""},
		{"override r2 --for 1h", true, ids[2], ids[1], snapshots.BecauseOverride, "override with " + ids[1].String() + " for 1h0m0s: a test"},
		{"pin r1", true, ids[1], ids[1], snapshots.BecauseOverride, "pin " + ids[0].String() + ": a test"},
		{"override --end", true, ids[1], ids[0], snapshots.BecausePin, "end the override with " + ids[1].String() + ": a test"},
		{"override --end", false, ids[0], ids[0], snapshots.BecausePin, ""},
		{"unpin", true, ids[0], ids[2], snapshots.BecauseNewest, "unpin " + ids[0].String() + ": a test"},
		{"pause", true, ids[2], snapshots.ID{}, snapshots.BecausePause, "pause: a test"},
		{"resume", true, snapshots.ID{}, ids[2], snapshots.BecauseNewest, "resume: a test"},
		{"resume", false, ids[2], ids[2], snapshots.BecauseNewest, ""},
		{"reject r3", true, ids[2], ids[1], snapshots.BecauseNewest, "reject " + ids[2].String() + ": a test"},
		{"retry r3", true, ids[1], ids[2], snapshots.BecauseNewest, "retry " + ids[2].String() + ": a test"},
		{"approve r3", true, ids[2], ids[2], snapshots.BecauseNewest, "approve " + ids[2].String() + ": a test"},
		{"approve r3", false, ids[2], ids[2], snapshots.BecauseNewest, "approve " + ids[2].String() + ": a test"},
		{"promote r3", true, ids[2], ids[2], snapshots.BecauseNewest, "promote " + ids[2].String() + ": a test"},
		{"promote --full", true, ids[2], ids[2], snapshots.BecauseNewest, "promote in full " + ids[2].String() + ": a test"},
		{"abort", true, ids[2], ids[2], snapshots.BecauseNewest, "abort " + ids[2].String() + ": a test"},
		{"rollback", true, ids[2], ids[1], snapshots.BecausePin, "roll back to " + ids[1].String() + ": a test"},
	} {
		before := channelOf(t, store)
		done := changeOf(t, append(strings.Fields(step.args), "--store", url, "--by", "ann", "--reason", "a test")...)
		if done.Changed != step.changed || done.Before.Wanted != step.before || done.After.Wanted != step.after || done.After.Because != step.because ||
			done.Subject != step.subject || done.By != "ann" || done.Reason != "a test" || done.Message == "" {
			t.Errorf("%s: %+v", step.args, done)
		}
		for _, c := range []struct{ said, is snapshots.ChannelSpec }{{done.Before.Channel, before}, {done.After.Channel, channelOf(t, store)}} {
			said, _ := snapshots.Channel{Spec: c.said}.Marshal()
			is, _ := snapshots.Channel{Spec: c.is}.Marshal()
			if !bytes.Equal(said, is) {
				t.Errorf("%s: said\n%s\nbut it is\n%s", step.args, said, is)
			}
		}
	}
}

func TestOverride(t *testing.T) {
	t.Parallel()
	store, url, ids := filledStore(t)
	expect(t, ids[0].String()+" is overridden until ", "override", "r1", "--for", "90m", "--store", url, "--by", "ann")
	if o := channelOf(t, store).Override; o == nil || o.Snapshot != ids[0] || o.By != "ann" || time.Until(o.Expires) > 90*time.Minute || time.Until(o.Expires) < 89*time.Minute {
		t.Errorf("the override is %+v", o)
	}
	expect(t, ids[2].String()+" is the newest", "override", "--end", "--store", url)
	expect(t, "nothing is overridden", "override", "--end", "--store", url)
	for said, args := range map[string][]string{
		"say with --for":           {"override", "r1"},
		"name a snapshot":          {"override", "--for", "1h"},
		"--for how long":           {"override", "r1", "--for", "-1h"},
		"--end stands alone":       {"override", "r1", "--end"},
		"holds no snapshot r9":     {"override", "r9", "--for", "1h"},
		`invalid argument "often"`: {"override", "r1", "--for", "often"},
	} {
		if code, _, errs := pusherCommand(t, append(args, "--store", url)...); code != process.ExitUsage || !strings.Contains(errs, said) {
			t.Errorf("%v: exit code %d, said %s", args, code, errs)
		}
	}
}

// managedStore is one whose channel something else keeps.
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
		return f.change(t.Context(), s, time.Now(), func(_ snapshots.View, c *snapshots.Channel) (string, error) {
			*c = c.Approve(ids[len(c.Spec.Approved)])
			return "approve", nil
		})
	}
	done, err := pin(managedStore{store, "Argo CD (application edge)", nil})
	if err != nil || done.Reverted != "Argo CD (application edge)" {
		t.Errorf("%+v, %v", done, err)
	}
	var said bytes.Buffer
	done.warn(&said)
	if want := "warning: Argo CD (application edge) keeps the channel as it is elsewhere, and will undo this\n\thint: "; !strings.HasPrefix(said.String(), want) {
		t.Errorf("said %q", said.String())
	}
	no := errors.New("no")
	if _, err := pin(managedStore{store, "", no}); !errors.Is(err, no) {
		t.Error(err)
	}
	if done, err := pin(store); err != nil || done.Reverted != "" {
		t.Errorf("%+v, %v", done, err)
	}
	if !slices.Equal(channelOf(t, store).Approved, ids[:2]) { // nothing, where it could not be told who manages it
		t.Errorf("approved are %v", channelOf(t, store).Approved)
	}
}

// Every verb that prints has JSON, and one form of it.
func TestEveryVerbPrintsJSON(t *testing.T) {
	t.Parallel()
	for _, cmd := range NewCommand().Commands() {
		if slices.Contains([]string{"run", "rbac", "version", "completion", "help"}, cmd.Name()) {
			continue
		}
		if flag := cmd.Flags().Lookup("output"); flag == nil || flag.Shorthand != "o" {
			t.Errorf("pusher %s has no -o", cmd.Name())
		}
	}
}
