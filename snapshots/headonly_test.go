package snapshots

import "testing"

// Where people choose the newest by merging it, no older one takes its place by
// itself: nobody knows whether it was ever merged.
func TestHeadOnly(t *testing.T) {
	t.Parallel()
	rejected := Rejection{Digest: digestN(3), Snapshot: idN(3)}
	for name, c := range map[string]struct {
		channel  Channel
		good     ID
		want, to ID // none: it holds
	}{
		"the newest":                  {Channel{}, ID{}, idN(3), ID{}},
		"the newest is rejected":      {Channel{}.Reject(rejected), idN(1), ID{}, ID{}},
		"the newest is not approved":  {Channel{}.WithApproval(true).Approve(idN(2)), ID{}, ID{}, ID{}},
		"an older one is pinned":      {Channel{}.Pinned(Pin{Snapshot: idN(2)}), ID{}, idN(2), ID{}},
		"it is known what ran before": {Channel{}, idN(1), idN(3), idN(1)},
	} {
		v := View{IDs: []ID{idN(1), idN(2), idN(3)}, HeadOnly: true, Channel: c.channel}
		if d := Want(v, noon); d.ID != c.want || d.Hold != c.want.IsZero() {
			t.Errorf("%s: wanted is %+v", name, d)
		}
		if _, to := Previous(v, []ID{c.good}, noon); to.ID != c.to || to.Hold != c.to.IsZero() {
			t.Errorf("%s: before that was %+v", name, to)
		}
	}
}
