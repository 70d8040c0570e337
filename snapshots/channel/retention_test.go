package channel

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/hapsnap/hapsnap/snapshots"
)

func TestRetain(t *testing.T) {
	day := 24 * time.Hour
	stored := []Stored{{idN(5), noon}, {idN(4), noon.Add(-time.Hour)}, {idN(3), noon.Add(-day)}, {idN(1), noon.Add(-9 * day)}, {idN(2), noon.Add(-8 * day)}}
	for _, tt := range []struct {
		name      string
		policy    RetentionPolicy
		protected map[snapshots.ID]string
		keep      []Kept
		drop      []snapshots.ID
	}{
		{"the newest one is always kept", RetentionPolicy{}, nil, []Kept{{idN(5), "among the newest 1"}}, []snapshots.ID{idN(1), idN(2), idN(3), idN(4)}},
		{"the newest n", RetentionPolicy{Keep: 2}, nil, []Kept{{idN(4), "among the newest 2"}, {idN(5), "among the newest 2"}}, []snapshots.ID{idN(1), idN(2), idN(3)}},
		{"more than there are", RetentionPolicy{Keep: 9}, nil, []Kept{{idN(1), "among the newest 9"}, {idN(2), "among the newest 9"}, {idN(3), "among the newest 9"}, {idN(4), "among the newest 9"}, {idN(5), "among the newest 9"}}, nil},
		{"what is young, to the second", RetentionPolicy{Younger: day}, nil, []Kept{{idN(4), "younger than 24h0m0s"}, {idN(5), "among the newest 1"}}, []snapshots.ID{idN(1), idN(2), idN(3)}},
		{"what is protected, for its own reason", RetentionPolicy{}, map[snapshots.ID]string{idN(1): "pinned", idN(5): "runs on edge-1", idN(8): "elsewhere"}, []Kept{{idN(1), "pinned"}, {idN(5), "runs on edge-1"}}, []snapshots.ID{idN(2), idN(3), idN(4)}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			keep, drop := Retain(stored, tt.policy, tt.protected, noon)
			if diff := cmp.Diff(tt.keep, keep); diff != "" {
				t.Errorf("kept (-want +got):\n%s", diff)
			}
			if diff := cmp.Diff(tt.drop, drop); diff != "" {
				t.Errorf("dropped (-want +got):\n%s", diff)
			}
		})
	}
	if keep, drop := Retain(nil, RetentionPolicy{}, nil, noon); keep != nil || drop != nil {
		t.Errorf("of nothing: %v, %v", keep, drop)
	}
}

func TestNamed(t *testing.T) {
	t.Parallel()
	override := func(until time.Time) Override { return Override{Snapshot: idN(3), Expires: until} }
	for name, c := range map[string]struct {
		channel Channel
		want    map[snapshots.ID]string
	}{
		"nobody said anything": {Channel{}, map[snapshots.ID]string{idN(4): "wanted"}},
		"a pin":                {Channel{}.Pinned(Pin{Snapshot: idN(2)}), map[snapshots.ID]string{idN(2): "pinned", idN(4): "wanted once nothing is pinned"}},
		"a pause":              {Channel{}.Paused(Pause{}), map[snapshots.ID]string{idN(4): "wanted once resumed"}},
		"a lasting override":   {Channel{}.Overridden(override(noon.Add(time.Hour))), map[snapshots.ID]string{idN(3): "overrides for a while", idN(4): "wanted once nothing is pinned"}},
		"an old override":      {Channel{}.Overridden(override(noon.Add(-time.Hour))), map[snapshots.ID]string{idN(4): "wanted"}},
		"a pin under a pause, where only what is approved runs": {
			Channel{}.WithApproval(true).Approve(idN(1)).Pinned(Pin{Snapshot: idN(2)}).Paused(Pause{}),
			map[snapshots.ID]string{idN(2): "pinned", idN(1): "wanted once nothing is pinned"},
		},
	} {
		got := Named(View{IDs: []snapshots.ID{idN(1), idN(2), idN(3), idN(4)}, Channel: c.channel}, noon)
		if diff := cmp.Diff(c.want, got); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
	}
}
