package cli

import (
	"strings"
	"testing"
	"time"

	"github.com/hapsnap/hapsnap/internal/process"
	"github.com/hapsnap/hapsnap/snapshots"
)

func TestApprove(t *testing.T) {
	t.Parallel()
	store, url, ids := filledStore(t)
	err := store.UpdateChannel(t.Context(), "ask for approval", time.Now(), func(c *snapshots.Channel) error {
		*c = c.WithApproval(true)
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	expect(t, ids[0].String()+" is the newest that is approved (2 waiting for approval)\n", "approve", "r1", "--store", url)
	expect(t, ids[2].String()+" is the newest\n", "approve", "r3", "--store", url)
	if code, _, errs := pusherCommand(t, "approve", "r4", "--store", url); code != process.ExitUsage || !strings.Contains(errs, "holds no snapshot r4") {
		t.Errorf("exit code %d, said %s", code, errs)
	}
	if approved := channelOf(t, store).Approved; len(approved) != 2 {
		t.Errorf("approved are %v", approved)
	}
}

func TestReject(t *testing.T) {
	t.Parallel()
	store, url, ids := filledStore(t)
	expect(t, ids[1].String()+" is the newest that is not rejected (1 rejected)\n", "reject", "r3", "--store", url, "--reason", "it is slow")
	if r := channelOf(t, store).Rejected; len(r) != 1 || r[0].Snapshot != ids[2] || r[0].Reason != "it is slow" || r[0].At.IsZero() {
		t.Errorf("rejected are %+v", r)
	}
	expect(t, ids[2].String()+" is the newest\n", "retry", "r3", "--store", url)
	expect(t, "pinned", "pin", "r2", "--store", url, "--by", "me")
	expect(t, ids[1].String()+" is pinned by me, but was rejected: by bob\n", "reject", "r2", "--store", url, "--by", "bob")
}
