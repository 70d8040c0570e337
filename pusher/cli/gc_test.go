package cli

import (
	"encoding/json"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/hapsnap/hapsnap/internal/process"
	"github.com/hapsnap/hapsnap/pusher/report"
	"github.com/hapsnap/hapsnap/snapshots"
	"github.com/hapsnap/hapsnap/snapshots/channel"
)

func TestCollect(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC)
	id := func(n uint64) snapshots.ID { return snapshots.ID{Revision: n, Short: "aaaaaaaaaa"} }
	view := channel.View{Channel: channel.Channel{}.Pinned(channel.Pin{Snapshot: id(2)})}
	for n := uint64(1); n <= 8; n++ {
		view.IDs = append(view.IDs, id(n))
	}
	used := map[snapshots.ID]string{id(2): "running on a", id(3): "last good, running on b", id(9): "wanted"}
	old := now.Add(-25 * time.Hour)
	times := map[snapshots.ID]time.Time{id(1): old, id(5): now.Add(-23 * time.Hour), id(6): old}
	c := collect(view, used, times, channel.RetentionPolicy{Keep: 2, Younger: 24 * time.Hour}, now)
	want := collection{
		Keep: []kept{
			{id(2), "pinned"}, {id(3), "last good, running on b"}, {id(4), "its age is not known"},
			{id(5), "younger than 24h0m0s"}, {id(7), "among the newest 2"}, {id(8), "wanted once nothing is pinned"},
		},
		Delete: []snapshots.ID{id(1), id(6)},
	}
	if diff := cmp.Diff(want, c); diff != "" {
		t.Errorf("(-want +got)\n%s", diff)
	}
	if diff := cmp.Diff([]snapshots.ID{id(1), id(4), id(5), id(6)}, aged(view, used, 2, now)); diff != "" {
		t.Errorf("aged (-want +got)\n%s", diff)
	}
}

func TestGC(t *testing.T) {
	t.Parallel()
	store, url, ids := filledStore(t)
	state := writeState(t, report.Status{Updated: time.Now()})
	gc := func(args ...string) (code int, stdout, stderr string) {
		return pusherCommand(t, append([]string{"gc", "--store", url}, args...)...)
	}
	// They are an hour old.
	if _, out, errs := gc("--state", state, "--keep", "1"); !strings.HasSuffix(out, "younger than 24h0m0s\n0 of 3 snapshots were deleted\n") {
		t.Errorf("printed %s%s", out, errs)
	}
	other := writeState(t, report.Status{Updated: time.Now(), Instances: []report.Instance{{Name: "a", Running: ids[1]}}})
	want := "keep    " + ids[2].String() + "  wanted\nkeep    " + ids[1].String() + "  running on a\ndelete  " + ids[0].String() + "\n1 of 3 snapshots "
	if _, out, errs := gc("--state", state, "--state", other, "--keep", "1", "--min-age", "59m", "--dry-run"); out != want+"would be deleted\n" {
		t.Errorf("printed %s%s", out, errs)
	}
	if view, err := store.View(t.Context()); err != nil || len(view.IDs) != 3 {
		t.Errorf("of a dry run: %v, %v", view.IDs, err)
	}
	if _, out, errs := gc("--state", state, "--state", other, "--keep", "1", "--min-age", "59m"); out != want+"were deleted\n" {
		t.Errorf("printed %s%s", out, errs)
	}
	_, out, _ := gc("--state", state, "--keep", "1", "--min-age", "59m", "-o", "json")
	var c collection
	if err := json.Unmarshal([]byte(out), &c); err != nil || c.DryRun || len(c.Keep) != 1 || len(c.Delete) != 1 || c.Delete[0] != ids[1] {
		t.Errorf("printed %s: %v", out, err)
	}
	if view, err := store.View(t.Context()); err != nil || len(view.IDs) != 1 || view.IDs[0] != ids[2] {
		t.Errorf("there are %v, %v", view.IDs, err)
	}
}

// Nothing is deleted while it is not known what is in use.
func TestGCRefuses(t *testing.T) {
	t.Parallel()
	store, url, ids := filledStore(t)
	none := filepath.Join(t.TempDir(), "none")
	elsewhere := writeState(t, report.Status{Updated: time.Now(), Instances: []report.Instance{{Name: "a", Running: snapshots.ID{Revision: 1, Short: "eeeeeeeeee"}}}})
	for _, c := range []struct {
		code int
		said string
		args []string
	}{
		{process.ExitUsage, "no state is named", nil},
		{process.ExitFailure, "there is no state file", []string{"--state", none}},
		{process.ExitUsage, "uses r000001-eeeeeeeeee, and the store holds nothing that it uses", []string{"--state", elsewhere}},
		{process.ExitUsage, "--keep=0: the newest is always kept", []string{"--state", none, "--keep", "0"}},
		{process.ExitUsage, "a duration is never negative", []string{"--state", none, "--min-age", "-1h"}},
	} {
		if code, _, errs := pusherCommand(t, append([]string{"gc", "--store", url, "--min-age", "0s"}, c.args...)...); code != c.code || !strings.Contains(errs, c.said) {
			t.Errorf("%v: exit code %d, said %s", c.args, code, errs)
		}
	}
	if view, err := store.View(t.Context()); err != nil || len(view.IDs) != len(ids) {
		t.Errorf("there are %v, %v", view.IDs, err)
	}
}
