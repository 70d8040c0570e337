package cli

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/hapsnap/hapsnap/internal/process"
	"github.com/hapsnap/hapsnap/pusher"
)

func TestRollback(t *testing.T) {
	t.Parallel()
	store, url, ids := filledStore(t)
	code, out, errs := pusherCommand(t, "rollback", "--store", url, "--by", "ann")
	want := ids[1].String() + " is pinned by ann: rolled back from " + ids[2].String() + "\n\tto go forward again: pusher unpin --store " + url + "\n"
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
	for _, c := range []struct{ said, to string }{
		{"there is nothing to roll back to: the store holds nothing older than " + ids[0].String(), ""},
		{ids[1].String() + " is not older than " + ids[0].String(), "r2"},
		{ids[0].String() + " is not older than " + ids[0].String(), "r1"},
		{"holds no snapshot r7", "r7"},
	} {
		if code, _, errs := pusherCommand(t, "rollback", "--store", url, "--to", c.to); code != process.ExitUsage || !strings.Contains(errs, c.said) {
			t.Errorf("to %q: exit code %d, said %s", c.to, code, errs)
		}
	}
	expect(t, ids[2].String()+" is the newest", "unpin", "--store", url)
	expect(t, ids[0].String()+" is pinned", "rollback", "--store", url, "--to", "r1")
}

// What the fleet ran last is gone back to, though there is something between.
func TestRollbackToWhatTheFleetRan(t *testing.T) {
	t.Parallel()
	_, url, ids := filledStore(t)
	state := writeState(t, pusher.Status{Updated: time.Now(), Good: ids[0]})
	expect(t, ids[0].String()+" is pinned", "rollback", "--store", url, "--state", state)
}
