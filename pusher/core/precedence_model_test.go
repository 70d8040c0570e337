package core

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
	pin      wish           // the zero value: none
	override wish
	expires  time.Time
	paused   bool
	careful  bool // approval is required
	approved map[snapshots.ID]bool
	rejected map[string]bool // by the short digest
	// failed holds, of those that a rollout of failed, what was good then; "" for nothing.
	failed map[string]string
	byHand map[string]bool // of those rejected, what a person rejected
}

// wish is a snapshot that a person named, with a number for each time.
type wish struct {
	id     snapshots.ID
	number int
}

func newModel() model {
	return model{approved: map[snapshots.ID]bool{}, rejected: map[string]bool{}, failed: map[string]string{}, byHand: map[string]bool{}}
}

// clone returns what a pusher sees that looks now.
func (m model) clone() model {
	m.stored, m.approved, m.rejected = slices.Clone(m.stored), maps.Clone(m.approved), maps.Clone(m.rejected)
	m.failed, m.byHand = maps.Clone(m.failed), maps.Clone(m.byHand)
	return m
}

// verdict is what should run, zero if what runs is to stay; by order is set where a
// person named it, by the wish of that number.
type verdict struct {
	id     snapshots.ID
	order  bool
	number int
}

// wants: an empty store and a pause hold; then comes an override, as long as it
// lasts, then a pin; what they name holds if it is missing or rejected. Else it is
// the newest that is not rejected and, if that is required, approved; where the newest
// that is rejected was so for a failure, nothing but what was good then.
func (m model) wants(now time.Time) verdict {
	switch {
	case len(m.stored) == 0 || m.paused:
		return verdict{order: m.paused}
	case !m.override.id.IsZero() && now.Before(m.expires):
		return m.ordered(m.override)
	case !m.pin.id.IsZero():
		return m.ordered(m.pin)
	}
	only, holds := "", false
	for i := len(m.stored) - 1; i >= 0; i-- {
		id := m.stored[i]
		switch {
		case m.rejected[id.Short]:
			if !holds || only == id.Short {
				only, holds = m.failed[id.Short], m.hasFailed(id.Short)
			}
		case holds && only != id.Short:
		case !m.careful || m.approved[id]:
			return verdict{id: id}
		}
	}
	return verdict{}
}

func (m model) hasFailed(short string) bool {
	_, failed := m.failed[short]
	return failed && !m.byHand[short]
}

// withdraw takes back whatever rejects a content.
func (m model) withdraw(short string) {
	delete(m.rejected, short)
	delete(m.failed, short)
	delete(m.byHand, short)
}

func (m model) ordered(w wish) verdict {
	for _, stored := range m.stored {
		if stored == w.id && !m.rejected[w.id.Short] {
			return verdict{w.id, true, w.number}
		}
	}
	return verdict{order: true}
}

// rejects reports whether a content is rejected that failed after it was tried for the
// wish of that number: not if people named it anew since.
func (m model) rejects(short string, number int, now time.Time) bool {
	pinned := m.pin.id.Short == short
	overridden := m.override.id.Short == short && now.Before(m.expires)
	return (!pinned && !overridden) || (pinned && m.pin.number == number) || (overridden && m.override.number == number)
}
