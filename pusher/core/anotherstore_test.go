package core

import (
	"errors"
	"testing"

	"github.com/hapsnap/hapsnap/snapshots"
	"github.com/hapsnap/hapsnap/snapshots/channel"
)

// A pusher that is started with another store keeps what runs if that store does not hold it, since
// the URL may have a misspelled branch. If a person then names a snapshot of that store, the pusher
// rolls it out.
func TestAnotherStore(t *testing.T) {
	t.Parallel()
	good, other := snapshots.ID{Revision: 7, Short: "aaaaaaaaaa"}, snapshots.ID{Revision: 1, Short: "bbbbbbbbbb"}
	copied := snapshots.ID{Revision: 1, Short: good.Short}
	for name, test := range map[string]struct {
		before, now string
		ids         []snapshots.ID
		pin         bool
		unreadable  bool // what runs
		held        bool
	}{
		"the same":                     {"dir:a", "dir:a", []snapshots.ID{other}, false, false, false},
		"another":                      {"dir:a", "dir:b", []snapshots.ID{other}, false, false, true},
		"another with the content":     {"dir:a", "dir:b", []snapshots.ID{copied, {Revision: 2, Short: "bbbbbbbbbb"}}, false, false, false},
		"another, and a pin":           {"dir:a", "dir:b", []snapshots.ID{other}, true, false, false},
		"another, and nobody can tell": {"dir:a", "dir:b", []snapshots.ID{other}, false, true, false},
		"the first":                    {"", "dir:b", []snapshots.ID{other}, false, false, false},
	} {
		m := newMachine(State{Seen: channel.Seen{Store: test.before}}, noon)
		m.state.Rollout.Good = good
		if test.unreadable {
			m.snapshotCache.Due([]snapshots.ID{good}, noon)
			m.snapshotCache.Take(good, snapshots.Snapshot{}, errors.New("not found"), noon)
		}
		view := channel.View{IDs: test.ids, Seen: channel.Seen{Store: test.now}}
		if test.pin {
			view.Channel = view.Channel.Pinned(channel.Pin{Snapshot: other, At: noon})
		}
		m.takeView(view, nil, noon)
		got := m.inKnownStore(decide(m.view, nil, noon), noon)
		_, told := m.troubles["another store"]
		if got.Hold != test.held || (m.state.Seen.Store == test.now) != (!test.held && !test.pin) || told != (test.held || test.pin) {
			t.Errorf("%s: the decision is %+v, remembered is %q, told %v", name, got, m.state.Seen.Store, told)
		}
	}
}
