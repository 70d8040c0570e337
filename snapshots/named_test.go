package snapshots

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

func TestNamed(t *testing.T) {
	t.Parallel()
	override := func(until time.Time) Override { return Override{Snapshot: idN(3), Expires: until} }
	for name, c := range map[string]struct {
		channel Channel
		want    map[ID]string
	}{
		"nobody said anything": {Channel{}, map[ID]string{idN(4): "wanted"}},
		"a pin":                {Channel{}.Pinned(Pin{Snapshot: idN(2)}), map[ID]string{idN(2): "pinned", idN(4): "wanted once nothing is pinned"}},
		"a pause":              {Channel{}.Paused(Pause{}), map[ID]string{idN(4): "wanted once resumed"}},
		"a lasting override":   {Channel{}.Overridden(override(noon.Add(time.Hour))), map[ID]string{idN(3): "overrides for a while", idN(4): "wanted once nothing is pinned"}},
		"an old override":      {Channel{}.Overridden(override(noon.Add(-time.Hour))), map[ID]string{idN(4): "wanted"}},
		"a pin under a pause, where only what is approved runs": {
			Channel{}.WithApproval(true).Approve(idN(1)).Pinned(Pin{Snapshot: idN(2)}).Paused(Pause{}),
			map[ID]string{idN(2): "pinned", idN(1): "wanted once nothing is pinned"},
		},
	} {
		got := Named(View{IDs: []ID{idN(1), idN(2), idN(3), idN(4)}, Channel: c.channel}, noon)
		if diff := cmp.Diff(c.want, got); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
	}
}
