package channel

import (
	"testing"
	"time"

	"github.com/hapsnap/hapsnap/snapshots"
)

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

// A rollback that leads to the content that runs already is none.
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
