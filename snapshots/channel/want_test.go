package channel

import (
	"strings"
	"testing"
	"time"

	"github.com/hapsnap/hapsnap/snapshots"
)

// A snapshot without an accepted signature never runs. If a running snapshot is no longer accepted, no older
// one replaces it.
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

// If people choose the newest snapshot by merging it, no older one replaces it by itself: it is not known
// whether that was ever merged.
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

func TestPrevious(t *testing.T) {
	t.Parallel()
	rejected := func(n int) Rejection { return Rejection{Digest: digestN(n), Snapshot: idN(n)} }
	failed := func(n, good int) Rejection {
		return Rejection{Digest: digestN(n), Snapshot: idN(n), Fleet: "edge", Failed: true, Good: idN(good)}
	}
	for name, c := range map[string]struct {
		channel  Channel
		good     snapshots.ID
		from, to snapshots.ID // none: it holds
		says     string
	}{
		"rejected by a failure":              {Channel{}.Reject(failed(4, 3)), snapshots.ID{}, idN(5), idN(3), ""},
		"from what is good after a failure":  {Channel{}.Reject(failed(5, 2)), idN(2), idN(2), idN(1), ""},
		"the one before":                     {Channel{}, snapshots.ID{}, idN(5), idN(4), ""},
		"the last good one":                  {Channel{}, idN(2), idN(5), idN(2), ""},
		"what is wanted is good":             {Channel{}, idN(5), idN(5), idN(4), ""},
		"the last good one is rejected":      {Channel{}.Reject(rejected(2)), idN(2), idN(5), idN(4), ""},
		"the last good one is not kept":      {Channel{}, idN(9), idN(5), idN(4), ""},
		"before the pin":                     {Channel{}.Pinned(Pin{Snapshot: idN(3)}), snapshots.ID{}, idN(3), idN(2), ""},
		"the last good one is after the pin": {Channel{}.Pinned(Pin{Snapshot: idN(3)}), idN(5), idN(3), idN(2), ""},
		"the first is pinned":                {Channel{}.Pinned(Pin{Snapshot: idN(1)}), snapshots.ID{}, idN(1), snapshots.ID{}, "the store holds nothing older than " + idN(1).String()},
		"a pin that is missing":              {Channel{}.Pinned(Pin{Snapshot: idN(9)}), snapshots.ID{}, snapshots.ID{}, snapshots.ID{}, idN(9).String() + " is pinned, but the store does not hold it"},
		"paused":                             {Channel{}.Paused(Pause{}), snapshots.ID{}, idN(5), idN(4), ""},
		"overridden":                         {Channel{}.Overridden(Override{Snapshot: idN(3), Expires: noon.Add(time.Hour)}), snapshots.ID{}, idN(3), idN(2), ""},
		"rejected are passed over":           {Channel{}.Reject(rejected(5)).Reject(rejected(3)), snapshots.ID{}, idN(4), idN(2), ""},
		"approved only":                      {Channel{}.WithApproval(true).Approve(idN(4)).Approve(idN(1)), snapshots.ID{}, idN(4), idN(1), ""},
		"nothing approved before":            {Channel{}.WithApproval(true).Approve(idN(4)), snapshots.ID{}, idN(4), snapshots.ID{}, "no snapshot may run: 3 waiting for approval"},
	} {
		from, to := Previous(View{IDs: []snapshots.ID{idN(1), idN(2), idN(3), idN(4), idN(5)}, Channel: c.channel}, []snapshots.ID{c.good}, noon)
		if from != c.from || to.ID != c.to || to.Hold != c.to.IsZero() || (c.says != "" && to.Message != c.says) {
			t.Errorf("%s: from %s to %+v", name, from, to)
		}
	}
}

// A rollback to the content that already runs is refused.
func TestPreviousIsAnotherContent(t *testing.T) {
	t.Parallel()
	same := func(revision uint64) snapshots.ID { return snapshots.NewID(revision, digestN(1)) }
	for name, c := range map[string]struct {
		ids  []snapshots.ID
		good []snapshots.ID
		to   snapshots.ID
		says string
	}{
		"published again":                      {[]snapshots.ID{idN(1), snapshots.NewID(2, digestN(2)), same(3)}, nil, snapshots.NewID(2, digestN(2)), ""},
		"the same twice":                       {[]snapshots.ID{snapshots.NewID(1, digestN(2)), same(2), same(3)}, nil, snapshots.NewID(1, digestN(2)), ""},
		"the last good one is the same":        {[]snapshots.ID{snapshots.NewID(1, digestN(2)), same(2), snapshots.NewID(3, digestN(3)), same(4)}, []snapshots.ID{same(2)}, snapshots.NewID(3, digestN(3)), ""},
		"the one before was good, and another": {[]snapshots.ID{snapshots.NewID(1, digestN(2)), same(2), snapshots.NewID(3, digestN(3)), same(4)}, []snapshots.ID{snapshots.NewID(1, digestN(2)), same(2)}, snapshots.NewID(1, digestN(2)), ""},
		"nothing else":                         {[]snapshots.ID{same(1), same(2)}, []snapshots.ID{same(1)}, snapshots.ID{}, "all that the store holds and is older than " + same(2).String() + " is of the same content"},
	} {
		_, to := Previous(View{IDs: c.ids}, c.good, noon)
		if to.ID != c.to || to.Hold != c.to.IsZero() || (c.says != "" && to.Message != c.says) {
			t.Errorf("%s: to %+v", name, to)
		}
	}
}
