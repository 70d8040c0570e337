package snapshots

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

func TestRetain(t *testing.T) {
	day := 24 * time.Hour
	stored := []Stored{{idN(5), noon}, {idN(4), noon.Add(-time.Hour)}, {idN(3), noon.Add(-day)}, {idN(1), noon.Add(-9 * day)}, {idN(2), noon.Add(-8 * day)}}
	for _, tt := range []struct {
		name      string
		policy    RetentionPolicy
		protected map[ID]string
		keep      []Kept
		drop      []ID
	}{
		{"the newest one is always kept", RetentionPolicy{}, nil, []Kept{{idN(5), "among the newest 1"}}, []ID{idN(1), idN(2), idN(3), idN(4)}},
		{"the newest n", RetentionPolicy{Keep: 2}, nil, []Kept{{idN(4), "among the newest 2"}, {idN(5), "among the newest 2"}}, []ID{idN(1), idN(2), idN(3)}},
		{"more than there are", RetentionPolicy{Keep: 9}, nil, []Kept{{idN(1), "among the newest 9"}, {idN(2), "among the newest 9"}, {idN(3), "among the newest 9"}, {idN(4), "among the newest 9"}, {idN(5), "among the newest 9"}}, nil},
		{"what is young, to the second", RetentionPolicy{Younger: day}, nil, []Kept{{idN(4), "younger than 24h0m0s"}, {idN(5), "among the newest 1"}}, []ID{idN(1), idN(2), idN(3)}},
		{"what is protected, for its own reason", RetentionPolicy{}, map[ID]string{idN(1): "pinned", idN(5): "runs on edge-1", idN(8): "elsewhere"}, []Kept{{idN(1), "pinned"}, {idN(5), "runs on edge-1"}}, []ID{idN(2), idN(3), idN(4)}},
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
