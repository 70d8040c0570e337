package rollout

import (
	"testing"
	"time"
)

// After the clock was set back, repairs do not wait longer than otherwise.
func TestRepairsAfterTheClockWasSetBack(t *testing.T) {
	t.Parallel()
	noon := time.Date(2026, 1, 2, 12, 0, 0, 0, time.UTC)
	tomorrow := noon.Add(24 * time.Hour)
	for name, r := range map[string]Repairs{
		"repairs of tomorrow":    {At: []time.Time{tomorrow, tomorrow, tomorrow}},
		"a conflict of tomorrow": {Stopped: tomorrow},
	} {
		if next, may := r.Due(noon); may || !next.InConflict() {
			t.Errorf("%s: %+v, may %t: they count as of now", name, next, may)
		} else if _, may = next.Due(noon.Add(conflictCooldown)); !may {
			t.Errorf("%s: still none an hour later", name)
		}
	}
}
