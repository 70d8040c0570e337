package channel

import (
	"strings"
	"testing"
	"time"

	"github.com/hapsnap/hapsnap/snapshots"
)

// Everything that may still count for a reader stays in the channel. The rest is removed.
func TestTidied(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 5, 1, 12, 0, 0, 0, time.UTC)
	r := func(n int) snapshots.ID { return snapshots.NewID(uint64(n), digestN(n)) }
	view := View{IDs: []snapshots.ID{r(2), r(3)}}
	order := func(n int, ago time.Duration) Order { return Order{Snapshot: r(n), At: now.Add(-ago)} }
	idle := Rolling{At: now}
	for name, test := range map[string]struct {
		channel Channel
		view    View
		rolling Rolling
		want    string // what is removed; "" for nothing
	}{
		"an override that lasts":             {Channel{}.Overridden(Override{Snapshot: r(2), Expires: now.Add(time.Second)}), view, idle, ""},
		"an override that is over":           {Channel{}.Overridden(Override{Snapshot: r(2), Expires: now}), view, idle, "the override with " + r(2).String() + " is over"},
		"an approval":                        {Channel{}.Approve(r(2)), view, idle, ""},
		"an approval ahead of its snapshot":  {Channel{}.Approve(r(4)), view, idle, ""},
		"an approval of what is gone":        {Channel{}.Approve(r(1)), view, idle, "the approval of " + r(1).String()},
		"an approval in a store that is out": {Channel{}.Approve(r(1)), View{}, idle, ""},
		"an approval before a merge":         {Channel{}.Approve(r(1)), View{IDs: view.IDs, HeadOnly: true}, idle, ""},
		"an approval of what is not signed":  {Channel{}.Approve(r(1)), View{IDs: view.IDs, Refused: []Refused{{ID: r(1), Reason: "no"}}}, idle, ""},
		"an order, and no word of a pusher":  {Channel{}.Aborted(order(2, time.Hour)), view, Rolling{}, ""},
		"an order about what is under way":   {Channel{}.Aborted(order(2, time.Hour)), view, Rolling{now, r(2)}, ""},
		"an order that is young":             {Channel{}.Aborted(order(2, time.Minute)), view, idle, ""},
		"an order given after the last word": {Channel{}.Aborted(order(2, time.Hour)), view, Rolling{now.Add(-2 * time.Hour), r(3)}, ""},
		"an order about what ended":          {Channel{}.Aborted(order(2, time.Hour)), view, idle, "the order to abort " + r(2).String() + ": its rollout has ended"},
		"an order about what is gone":        {Channel{}.Promoted(order(1, 0)), view, Rolling{}, "the order to promote " + r(1).String()},
		"an order about what was rejected":   {Channel{}.Promoted(order(2, time.Hour)).Reject(Rejection{Digest: digestN(2), Snapshot: r(2), At: now}), view, Rolling{}, "it was rejected since"},
		"an order about what failed in another fleet": {
			Channel{}.Promoted(order(2, time.Hour)).Reject(Rejection{Digest: digestN(2), Snapshot: r(2), At: now, Fleet: "west"}), view, Rolling{}, "",
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			before, _ := test.channel.Marshal()
			next, stale := test.channel.Tidied(test.view, test.rolling, now)
			after, _ := next.Marshal()
			if test.want == "" && (len(stale) > 0 || string(before) != string(after)) {
				t.Errorf("%+v left:\n%s", stale, after)
			}
			if test.want != "" && (len(stale) != 1 || !strings.Contains(stale[0].Message, test.want) || string(before) == string(after)) {
				t.Errorf("%+v left, want %q:\n%s", stale, test.want, after)
			}
			if unchanged, _ := test.channel.Marshal(); string(unchanged) != string(before) {
				t.Error("the channel itself was changed")
			}
		})
	}
}
