package pusher

import (
	"maps"
	"slices"
	"time"

	"github.com/hapsnap/hapsnap/snapshots"
)

// model says what should run, from what was done to a store and its channel. It is
// written after the documentation, and calls nothing of what decides in earnest.
type model struct {
	stored   []snapshots.ID // ascending
	pin      snapshots.ID   // zero: none
	override snapshots.ID
	expires  time.Time
	paused   bool
	careful  bool // approval is required
	approved map[snapshots.ID]bool
	rejected map[string]bool // by the short digest
}

func newModel() model {
	return model{approved: map[snapshots.ID]bool{}, rejected: map[string]bool{}}
}

// clone returns what a pusher sees that looks now.
func (m model) clone() model {
	m.stored, m.approved, m.rejected = slices.Clone(m.stored), maps.Clone(m.approved), maps.Clone(m.rejected)
	return m
}

// verdict is what should run, zero if what runs is to stay; by order is set where a
// person named it.
type verdict struct {
	id    snapshots.ID
	order bool
}

// wants: an empty store and a pause hold; then comes an override, as long as it
// lasts, then a pin; what they name holds if it is missing or rejected. Else it is
// the newest that is not rejected and, if that is required, approved.
func (m model) wants(now time.Time) verdict {
	switch {
	case len(m.stored) == 0 || m.paused:
		return verdict{order: m.paused}
	case !m.override.IsZero() && now.Before(m.expires):
		return m.ordered(m.override)
	case !m.pin.IsZero():
		return m.ordered(m.pin)
	}
	for i := len(m.stored) - 1; i >= 0; i-- {
		if id := m.stored[i]; !m.rejected[id.Short] && (!m.careful || m.approved[id]) {
			return verdict{id: id}
		}
	}
	return verdict{}
}

func (m model) ordered(id snapshots.ID) verdict {
	for _, stored := range m.stored {
		if stored == id && !m.rejected[id.Short] {
			return verdict{id, true}
		}
	}
	return verdict{order: true}
}
