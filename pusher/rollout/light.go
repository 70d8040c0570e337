package rollout

import (
	"slices"

	"github.com/hapsnap/hapsnap/snapshots"
)

// light reports whether an instance can be brought to a snapshot without a reload. It
// takes nothing from the budget, then.
func (t *turn) light(name string, id snapshots.ID) bool {
	return slices.Contains(t.seen[name].Light, id)
}
