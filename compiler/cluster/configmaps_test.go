package cluster

import (
	"strings"
	"testing"
	"time"
)

func TestStatusIsOfLately(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC)
	for updated, want := range map[string]string{
		"2026-01-01T11:59:00Z": "",
		"2026-01-01T12:01:00Z": "", // the clock of the pusher is a little ahead
		"2026-01-01T11:50:00Z": "no pusher",
		"2026-01-01T13:00:00Z": "the clock of the pusher is ahead",
		"":                     "no pusher",
	} {
		if got := writtenLately(updated, now); !strings.HasPrefix(got, want) || (got == "") != (want == "") {
			t.Errorf("%s: %v", updated, got)
		}
	}
}
