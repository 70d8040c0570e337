package haproxycfg_test

import (
	"testing"
	"time"

	"github.com/hapsnap/hapsnap/internal/haproxycfg"
)

func TestDuration(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]time.Duration{
		"30": 30 * time.Millisecond, "7us": 7 * time.Microsecond, "250ms": 250 * time.Millisecond, "30s": 30 * time.Second, "5m": 5 * time.Minute,
		"2h": 2 * time.Hour, "1d": 24 * time.Hour, "0": 0, "": 0, "s": 0, "-1s": 0, "1.5s": 0, "1w": 0, "1 s": 0, "99999999999s": 0,
	} {
		if got := haproxycfg.Duration(text); got != want {
			t.Errorf("%q is %s, want %s", text, got, want)
		}
	}
}
