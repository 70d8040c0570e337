package channel

import (
	"strings"
	"testing"
	"time"

	"github.com/hapsnap/hapsnap/snapshots"
)

// A snapshot that is not signed by who may is never wanted, and nothing older takes the place
// of one that runs and is no longer accepted.
func TestWantRefused(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC)
	one, two, three := snapshots.ID{Revision: 1, Short: "1111111111"}, snapshots.ID{Revision: 2, Short: "2222222222"}, snapshots.ID{Revision: 3, Short: "3333333333"}
	refused := func(ids ...snapshots.ID) (out []Refused) {
		for _, id := range ids {
			out = append(out, Refused{id, id.String() + " has no signature"})
		}
		return out
	}
	pinned := func(id snapshots.ID) Channel { return Channel{Spec: Spec{Pin: &Pin{Snapshot: id}}} }
	for name, test := range map[string]struct {
		view    View
		want    snapshots.ID
		because Reason
	}{
		"none is signed":                   {View{Refused: refused(one, two)}, snapshots.ID{}, BecauseUntrusted},
		"a newer one is not":               {View{IDs: []snapshots.ID{one, two}, Refused: refused(three), Runs: two}, two, BecauseNewest},
		"what runs is not":                 {View{IDs: []snapshots.ID{one}, Refused: refused(two, three), Runs: two}, snapshots.ID{}, BecauseUntrusted},
		"what runs is not, a newer one is": {View{IDs: []snapshots.ID{one, three}, Refused: refused(two), Runs: two}, three, BecauseNewest},
		"an older one is pinned":           {View{IDs: []snapshots.ID{one}, Refused: refused(two), Runs: two, Channel: pinned(one)}, one, BecausePin},
		"one that is not is pinned":        {View{IDs: []snapshots.ID{one}, Refused: refused(two), Runs: one, Channel: pinned(two)}, snapshots.ID{}, BecausePin},
		"what runs was deleted":            {View{IDs: []snapshots.ID{one}, Runs: two}, one, BecauseNewest},
	} {
		d := Want(test.view, now)
		if d.ID != test.want || d.Because != test.because || d.Hold != test.want.IsZero() || d.Hold && !strings.Contains(d.Message, "has no signature") {
			t.Errorf("%s: %+v", name, d)
		}
	}
}

// Where people choose the newest by merging it, no older one takes its place by
// itself: nobody knows whether it was ever merged.
func TestHeadOnly(t *testing.T) {
	t.Parallel()
	rejected := Rejection{Digest: digestN(3), Snapshot: idN(3)}
	for name, c := range map[string]struct {
		channel  Channel
		good     snapshots.ID
		want, to snapshots.ID // none: it holds
	}{
		"the newest":                  {Channel{}, snapshots.ID{}, idN(3), snapshots.ID{}},
		"the newest is rejected":      {Channel{}.Reject(rejected), idN(1), snapshots.ID{}, snapshots.ID{}},
		"the newest is not approved":  {Channel{}.WithApproval(true).Approve(idN(2)), snapshots.ID{}, snapshots.ID{}, snapshots.ID{}},
		"an older one is pinned":      {Channel{}.Pinned(Pin{Snapshot: idN(2)}), snapshots.ID{}, idN(2), snapshots.ID{}},
		"it is known what ran before": {Channel{}, idN(1), idN(3), idN(1)},
	} {
		v := View{IDs: []snapshots.ID{idN(1), idN(2), idN(3)}, HeadOnly: true, Channel: c.channel}
		if d := Want(v, noon); d.ID != c.want || d.Hold != c.want.IsZero() {
			t.Errorf("%s: wanted is %+v", name, d)
		}
		if _, to := Previous(v, []snapshots.ID{c.good}, noon); to.ID != c.to || to.Hold != c.to.IsZero() {
			t.Errorf("%s: before that was %+v", name, to)
		}
	}
}
