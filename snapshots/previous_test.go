package snapshots

import (
	"testing"
	"time"
)

func TestPrevious(t *testing.T) {
	t.Parallel()
	rejected := func(n int) Rejection { return Rejection{Digest: digestN(n), Snapshot: idN(n)} }
	failed := func(n, good int) Rejection {
		return Rejection{Digest: digestN(n), Snapshot: idN(n), Fleet: "edge", Failed: true, Good: idN(good)}
	}
	for name, c := range map[string]struct {
		channel  Channel
		good     ID
		from, to ID // none: it holds
		says     string
	}{
		"rejected by a failure":              {Channel{}.Reject(failed(4, 3)), ID{}, idN(5), idN(3), ""},
		"from what is good after a failure":  {Channel{}.Reject(failed(5, 2)), idN(2), idN(2), idN(1), ""},
		"the one before":                     {Channel{}, ID{}, idN(5), idN(4), ""},
		"the last good one":                  {Channel{}, idN(2), idN(5), idN(2), ""},
		"what is wanted is good":             {Channel{}, idN(5), idN(5), idN(4), ""},
		"the last good one is rejected":      {Channel{}.Reject(rejected(2)), idN(2), idN(5), idN(4), ""},
		"the last good one is not kept":      {Channel{}, idN(9), idN(5), idN(4), ""},
		"before the pin":                     {Channel{}.Pinned(Pin{Snapshot: idN(3)}), ID{}, idN(3), idN(2), ""},
		"the last good one is after the pin": {Channel{}.Pinned(Pin{Snapshot: idN(3)}), idN(5), idN(3), idN(2), ""},
		"the first is pinned":                {Channel{}.Pinned(Pin{Snapshot: idN(1)}), ID{}, idN(1), ID{}, "the store holds nothing older than " + idN(1).String()},
		"a pin that is missing":              {Channel{}.Pinned(Pin{Snapshot: idN(9)}), ID{}, ID{}, ID{}, idN(9).String() + " is pinned, but the store does not hold it"},
		"paused":                             {Channel{}.Paused(Pause{}), ID{}, idN(5), idN(4), ""},
		"overridden":                         {Channel{}.Overridden(Override{Snapshot: idN(3), Expires: noon.Add(time.Hour)}), ID{}, idN(3), idN(2), ""},
		"rejected are passed over":           {Channel{}.Reject(rejected(5)).Reject(rejected(3)), ID{}, idN(4), idN(2), ""},
		"approved only":                      {Channel{}.WithApproval(true).Approve(idN(4)).Approve(idN(1)), ID{}, idN(4), idN(1), ""},
		"nothing approved before":            {Channel{}.WithApproval(true).Approve(idN(4)), ID{}, idN(4), ID{}, "no snapshot may run: 3 waiting for approval"},
	} {
		from, to := Previous(View{IDs: []ID{idN(1), idN(2), idN(3), idN(4), idN(5)}, Channel: c.channel}, []ID{c.good}, noon)
		if from != c.from || to.ID != c.to || to.Hold != c.to.IsZero() || (c.says != "" && to.Message != c.says) {
			t.Errorf("%s: from %s to %+v", name, from, to)
		}
	}
}

// A rollback that leads to the content that runs already is none.
func TestPreviousIsAnotherContent(t *testing.T) {
	t.Parallel()
	same := func(revision uint64) ID { return NewID(revision, digestN(1)) }
	for name, c := range map[string]struct {
		ids  []ID
		good []ID
		to   ID
		says string
	}{
		"published again":                      {[]ID{idN(1), NewID(2, digestN(2)), same(3)}, nil, NewID(2, digestN(2)), ""},
		"the same twice":                       {[]ID{NewID(1, digestN(2)), same(2), same(3)}, nil, NewID(1, digestN(2)), ""},
		"the last good one is the same":        {[]ID{NewID(1, digestN(2)), same(2), NewID(3, digestN(3)), same(4)}, []ID{same(2)}, NewID(3, digestN(3)), ""},
		"the one before was good, and another": {[]ID{NewID(1, digestN(2)), same(2), NewID(3, digestN(3)), same(4)}, []ID{NewID(1, digestN(2)), same(2)}, NewID(1, digestN(2)), ""},
		"nothing else":                         {[]ID{same(1), same(2)}, []ID{same(1)}, ID{}, "all that the store holds and is older than " + same(2).String() + " is of the same content"},
	} {
		_, to := Previous(View{IDs: c.ids}, c.good, noon)
		if to.ID != c.to || to.Hold != c.to.IsZero() || (c.says != "" && to.Message != c.says) {
			t.Errorf("%s: to %+v", name, to)
		}
	}
}
