package cli

import (
	"strings"
	"testing"
	"time"

	"github.com/hapsnap/hapsnap/internal/process"
	"github.com/hapsnap/hapsnap/snapshots"
	"github.com/hapsnap/hapsnap/snapshots/channel"
	"github.com/hapsnap/hapsnap/snapshots/stores"
)

// What ran at a time is known if all fleets ran the same, or if a fleet is named. The snapshot must be in the
// store.
func TestWhatRanThen(t *testing.T) {
	t.Parallel()
	now := time.Now().Truncate(time.Second)
	store, err := stores.Open(t.Context(), "dir:"+t.TempDir(), stores.Options{Publish: true})
	if err != nil {
		t.Fatal(err)
	}
	var ids []snapshots.ID
	for n, backend := range []string{"a", "b"} {
		id, _, err := store.Publish(t.Context(), snapshots.Draft{
			Files: []snapshots.File{{Path: snapshots.ConfigFile, Content: []byte("backend " + backend + "\n")}}, Time: now.Add(time.Duration(n-3) * time.Hour),
		})
		if err != nil {
			t.Fatal(err)
		}
		ids = append(ids, id)
	}
	gone := snapshots.ID{Revision: 9, Short: "0123456789"}
	turn := func(minutesAgo int, fleet string, verb channel.Verb, id snapshots.ID) channel.Entry {
		return channel.Entry{At: now.Add(-time.Duration(minutesAgo) * time.Minute), Turn: true, Fleet: fleet, Verb: verb, Snapshot: id}
	}
	if err := store.Record(t.Context(), now,
		turn(50, "edge", channel.TurnDone, ids[1]), turn(40, "edge", channel.TurnDone, ids[0]), turn(35, "edge", channel.TurnBegan, ids[1]),
		turn(30, "lab", channel.TurnBegan, ids[1]), turn(25, "lab", channel.TurnDone, ids[1]), turn(20, "edge", channel.TurnDone, ids[1]), turn(10, "lab", channel.TurnDone, gone),
	); err != nil {
		t.Fatal(err)
	}
	for name, test := range map[string]struct {
		flags *requestFlags
		want  snapshots.ID
		said  string
	}{
		"before all turns":               {&requestFlags{at: "55m ago"}, ids[1], "the newest that was published by then; the journal has no rollout"},
		"before all, long ago":           {&requestFlags{at: "2h30m"}, ids[0], "the newest that was published by then"},
		"an older one":                   {&requestFlags{at: "36m"}, ids[0], "which ran in fleet edge then, since "},
		"another one is under way":       {&requestFlags{at: "31m"}, ids[0], "; a rollout of " + ids[1].String() + " was under way"},
		"another fleet has its first":    {&requestFlags{at: "28m"}, ids[0], "in fleet edge"},
		"fleets differ":                  {&requestFlags{at: "22m"}, snapshots.ID{}, "fleets ran different snapshots then: edge " + ids[0].String() + ", lab " + ids[1].String()},
		"fleets differ, one is named":    {&requestFlags{at: "22m", fleet: "lab"}, ids[1], "in fleet lab"},
		"fleets agree":                   {&requestFlags{at: "15m"}, ids[1], "in fleet edge"},
		"a fleet that is not there":      {&requestFlags{at: "15m", fleet: "egde"}, snapshots.ID{}, `no rollout of fleet "egde" from before then`},
		"a snapshot that is not there":   {&requestFlags{at: "5m", fleet: "lab"}, snapshots.ID{}, "fleet lab ran " + gone.String() + " then, and "},
		"before the oldest":              {&requestFlags{at: "9h"}, snapshots.ID{}, "holds no snapshot from before"},
		"a time that nobody understands": {&requestFlags{at: "soon"}, snapshots.ID{}, "--at: want a time such as"},
	} {
		id, said, err := test.flags.ranThen(t.Context(), store, ids, now)
		if err != nil {
			id, said = snapshots.ID{}, err.Error()
			if code := process.Code(t.Context(), err); code != process.ExitUsage {
				t.Errorf("%s: exit code %d", name, code)
			}
		}
		if id != test.want || !strings.Contains(said, test.said) {
			t.Errorf("%s: %s, %q", name, id, said)
		}
	}
}
