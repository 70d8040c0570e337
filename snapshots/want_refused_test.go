package snapshots

import (
	"strings"
	"testing"
	"time"
)

// A snapshot that is not signed by who may is never wanted, and nothing older takes the place
// of one that runs and is no longer accepted.
func TestWantRefused(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC)
	one, two, three := ID{1, "1111111111"}, ID{2, "2222222222"}, ID{3, "3333333333"}
	refused := func(ids ...ID) (out []Refused) {
		for _, id := range ids {
			out = append(out, Refused{id, id.String() + " has no signature"})
		}
		return out
	}
	pinned := func(id ID) Channel { return Channel{Spec: ChannelSpec{Pin: &Pin{Snapshot: id}}} }
	for name, test := range map[string]struct {
		view    View
		want    ID
		because Reason
	}{
		"none is signed":                   {View{Refused: refused(one, two)}, ID{}, BecauseUntrusted},
		"a newer one is not":               {View{IDs: []ID{one, two}, Refused: refused(three), Runs: two}, two, BecauseNewest},
		"what runs is not":                 {View{IDs: []ID{one}, Refused: refused(two, three), Runs: two}, ID{}, BecauseUntrusted},
		"what runs is not, a newer one is": {View{IDs: []ID{one, three}, Refused: refused(two), Runs: two}, three, BecauseNewest},
		"an older one is pinned":           {View{IDs: []ID{one}, Refused: refused(two), Runs: two, Channel: pinned(one)}, one, BecausePin},
		"one that is not is pinned":        {View{IDs: []ID{one}, Refused: refused(two), Runs: one, Channel: pinned(two)}, ID{}, BecausePin},
		"what runs was deleted":            {View{IDs: []ID{one}, Runs: two}, one, BecauseNewest},
	} {
		d := Want(test.view, now)
		if d.ID != test.want || d.Because != test.because || d.Hold != test.want.IsZero() || d.Hold && !strings.Contains(d.Message, "has no signature") {
			t.Errorf("%s: %+v", name, d)
		}
	}
}
