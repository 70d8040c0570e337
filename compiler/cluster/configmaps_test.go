package cluster

import (
	"testing"
	"time"
)

func TestStatusIsOfLately(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC)
	for updated, want := range map[string]bool{
		"2026-01-01T11:59:00Z": true,
		"2026-01-01T12:01:00Z": true, // the clock of the pusher is a little ahead
		"2026-01-01T11:50:00Z": false,
		"2026-01-01T13:00:00Z": false, // nobody can say how old it is
		"":                     false,
	} {
		if got := writtenLately(updated, now); got != want {
			t.Errorf("%s: %v", updated, got)
		}
	}
}
