package cli

import (
	"strings"
	"testing"

	"github.com/hapsnap/hapsnap/internal/process"
	"github.com/hapsnap/hapsnap/pusher"
	"github.com/hapsnap/hapsnap/pusher/rollout"
)

// An order is about the rollout that the state file tells of, else of the snapshot that
// is named, or that should run.
func TestOrders(t *testing.T) {
	t.Parallel()
	store, url, ids := filledStore(t)
	idle := writeState(t, pusher.Status{})
	rolling := writeState(t, pusher.Status{Rollout: &pusher.RolloutStatus{Target: ids[1], Phase: rollout.Soaking}})

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
	if code, _, errs := pusherCommand(t, "abort", "--store", url); code != process.ExitUsage || !strings.Contains(errs, "it cannot be told which rollout is meant: paused") {
		t.Errorf("exit code %d, said %s", code, errs)
	}
}
