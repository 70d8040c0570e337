package cli

import (
	"testing"
	"time"

	"github.com/hapsnap/hapsnap/snapshots"
)

// Only what is rejected can be retried, and only one snapshot is pinned.
func TestSnapshotsAreCompleted(t *testing.T) {
	t.Parallel()
	store, url, ids := filledStore(t)
	s, err := store.Get(t.Context(), ids[1])
	if err != nil {
		t.Fatal(err)
	}
	err = store.UpdateChannel(t.Context(), "reject", time.Now(), func(c *snapshots.Channel) error {
		*c = c.Reject(snapshots.Rejection{Digest: s.Manifest.Spec.Digest, Snapshot: ids[1], Reason: "it failed"})
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	const asTheyStand = "\n:36\n" // no files, and not sorted
	all := ids[2].String() + "\n" + ids[1].String() + "\n" + ids[0].String()
	for _, c := range []struct {
		want string
		args []string
	}{
		{all + asTheyStand, []string{"pin", "--store", url, ""}},
		{asTheyStand[1:], []string{"pin", "--store", url, ids[0].String(), ""}},
		{all + asTheyStand, []string{"diff", "--store", url, ids[0].String(), ""}},
		{asTheyStand[1:], []string{"diff", "--store", url, ids[0].String(), ids[1].String(), ""}},
		{asTheyStand[1:], []string{"pin", ""}},
		{asTheyStand[1:], []string{"pin", "--store", "ftp://x", ""}},
		{ids[1].String() + asTheyStand, []string{"retry", "--store", url, ""}},
	} {
		if _, out, _ := pusherCommand(t, append([]string{"__complete"}, c.args...)...); out != c.want {
			t.Errorf("%v: %q, want %q", c.args, out, c.want)
		}
	}
}
