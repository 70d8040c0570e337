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

// A pusher counts whose clock is far behind or ahead: it is heard when it writes again. Once it writes no more, it does not count.
func TestPusherWithAWrongClock(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC)
	for _, apart := range []time.Duration{-time.Hour, -6 * time.Minute, time.Minute, 6 * time.Minute, 24 * time.Hour} {
		var w writingTimes
		written := func(at time.Time) string { return at.Add(apart).Format(time.RFC3339) }
		if why := w.lately(written(now), now); (why == "") != (apart == time.Minute) {
			t.Errorf("by a clock that is %s apart, at first: %q", apart, why)
		}
		for i := range 20 {
			at := now.Add(time.Duration(i+1) * time.Minute)
			if why := w.lately(written(at), at.Add(30*time.Second)); why != "" {
				t.Errorf("by a clock that is %s apart, after %d minutes: %q", apart, i+1, why)
			}
		}
		end := now.Add(20 * time.Minute)
		if why := w.lately(written(end), end.Add(20*time.Minute)); why == "" {
			t.Errorf("by a clock that is %s apart, 20 minutes after the last time: it counts", apart)
		}
	}
}
