package core

import (
	"slices"
	"testing"

	"github.com/hapsnap/hapsnap/snapshots"
)

// While files of snapshots are being removed, no newly needed snapshot is read: it would be written to disk,
// and removed at once. A reading that had begun continues.
func TestSnapshotIsNotReadWhileItIsForgotten(t *testing.T) {
	t.Parallel()
	e := newMachine(State{}, noon)
	one, two, three := snapshots.ID{Revision: 1, Short: "aaaaaaaaaa"}, snapshots.ID{Revision: 2, Short: "bbbbbbbbbb"}, snapshots.ID{Revision: 3, Short: "cccccccccc"}
	for _, test := range []struct {
		good, wanted snapshots.ID
		ends         Event // of the work that had begun before
		begins       []string
	}{
		{one, two, nil, []string{ReadSnapshot{one}.String(), ReadSnapshot{two}.String()}},
		{three, three, SnapshotRead{ID: one}, []string{ReadSnapshot{three}.String(), ForgetSnapshots{map[snapshots.ID]bool{two: true, three: true}}.String()}},
		{one, two, nil, nil},
		{one, two, SnapshotsForgotten{}, []string{ReadSnapshot{one}.String()}},
	} {
		if test.ends != nil {
			test.ends.apply(e, noon)
		}
		e.state.Rollout.Good, e.decision.ID = test.good, test.wanted
		e.supply.readSnapshots(noon)
		var begun []string
		for _, x := range e.effects {
			begun = append(begun, x.String())
		}
		if e.effects = nil; !slices.Equal(begun, test.begins) {
			t.Errorf("for %s and %s it began %q, want %q", test.good, test.wanted, begun, test.begins)
		}
	}
}
