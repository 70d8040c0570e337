package channel

import (
	"testing"

	"github.com/hapsnap/hapsnap/snapshots"
)

func TestAcceptedRewindNamesWhatIsGone(t *testing.T) {
	one, two, three := idN(1), idN(2), idN(3)
	c := Channel{}.RewindAccepted(AcceptedRewind{Snapshots: []snapshots.ID{three, two}, By: "ann", At: noon})
	c = c.RewindAccepted(AcceptedRewind{Snapshots: []snapshots.ID{two}, Channels: []string{"abc"}, By: "bob", At: noon})
	data, err := c.Marshal()
	if err != nil {
		t.Fatal(err)
	}
	if c, err = Parse(data); err != nil {
		t.Fatal(err)
	}
	if r := c.Spec.AcceptedRewind; len(r.Snapshots) != 2 || len(r.Channels) != 1 || r.By != "bob" {
		t.Errorf("accepted %+v", r)
	}
	for name, test := range map[string]struct {
		gone RewoundError
		want bool
	}{
		"a snapshot":          {RewoundError{Snapshots: []snapshots.ID{two}}, true},
		"all":                 {RewoundError{Snapshots: []snapshots.ID{two, three}, Channel: "abc"}, true},
		"the channel":         {RewoundError{Channel: "abc"}, true},
		"another snapshot":    {RewoundError{Snapshots: []snapshots.ID{one, two}}, false},
		"another channel":     {RewoundError{Channel: "abd"}, false},
		"a channel with more": {RewoundError{Snapshots: []snapshots.ID{two}, Channel: "abd"}, false},
	} {
		if got := c.AcceptsRewind(&test.gone); got != test.want {
			t.Errorf("%s: accepted %v", name, got)
		}
	}
	if (Channel{}).AcceptsRewind(&RewoundError{Channel: "abc"}) {
		t.Error("accepted by nobody")
	}
	for _, version := range []string{"", "a b", "a\nb", "a,b"} {
		if _, err := (Channel{}).RewindAccepted(AcceptedRewind{Channels: []string{version}}).Marshal(); err == nil {
			t.Errorf("the version %q was written", version)
		}
	}
}
