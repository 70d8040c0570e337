package rollout

import (
	"slices"
	"time"
)

// Wait is something that keeps a rollout, or an instance, from going on now.
type Wait struct {
	// For says what is waited for, in a few words.
	For string `json:"for"`
	// Instance is whose turn it is, "" if it is about the fleet.
	Instance string `json:"instance,omitempty"`
	// Until is when it will be over, zero where nobody can know.
	Until time.Time `json:"until,omitzero"`
}

// wait notes what is waited for, once.
func (t *turn) wait(w Wait) {
	if !slices.Contains(t.waits, w) {
		t.waits = append(t.waits, w)
	}
}
