package core

import (
	"maps"
	"slices"
	"time"

	"github.com/hapsnap/hapsnap/snapshots"
)

// model says what should run, from what was done to a store and its channel. It is written from the
// documentation, and calls nothing of the code that it tests.
type model struct {
	stored   []snapshots.ID // ascending
	pin      wish           // the zero value: none
	override wish
	expires  time.Time
	paused   bool
	careful  bool // approval is required
	approved map[snapshots.ID]bool
	rejected map[string]bool // by the short digest
	// failed is what was good at the time for each content whose rollout failed; "" for nothing.
	failed map[string]string
	byHand map[string]bool // rejected contents that a person rejected
}

// wish is a snapshot that a person named. Each wish has a number of its own.
type wish struct {
	id     snapshots.ID
	number int
}

func newModel() model {
	return model{approved: map[snapshots.ID]bool{}, rejected: map[string]bool{}, failed: map[string]string{}, byHand: map[string]bool{}}
}

// clone returns the model as a pusher sees it that looks now.
func (m model) clone() model {
	m.stored, m.approved, m.rejected = slices.Clone(m.stored), maps.Clone(m.approved), maps.Clone(m.rejected)
	m.failed, m.byHand = maps.Clone(m.failed), maps.Clone(m.byHand)
	return m
}

// verdict is the snapshot that should run. It is zero if what runs should stay. by is the number of the wish if
// a person named it.
type verdict struct {
	id     snapshots.ID
	order  bool
	number int
}

// wants applies the precedence. An empty store and a pause hold. Then comes an override until it expires, then
// a pin. They hold if their snapshot is missing or rejected. Otherwise it is the newest snapshot that is not
// rejected and, if required, approved. If the newest rejection came from a failure, it is what was good then,
// and nothing else.
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

// withdraw removes all rejections of a content.
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

// rejects reports whether a content is rejected that failed after it was tried for the wish of that number. It
// is not if people have named it again since.
func (m model) rejects(short string, number int, now time.Time) bool {
	pinned := m.pin.id.Short == short
	overridden := m.override.id.Short == short && now.Before(m.expires)
	return (!pinned && !overridden) || (pinned && m.pin.number == number) || (overridden && m.override.number == number)
}
