package rollout

import (
	"fmt"
	"strconv"
	"strings"
	"time"
)

// Policy says how careful a rollout is.
type Policy struct {
	// Waves are how many instances have the snapshot after each wave, counted
	// from the start of the rollout. After the last one come all that remain, or
	// one zone after another if the last one is a zone.
	Waves []Size
	// Soak is how long everything pushed so far has to stay healthy before the
	// next wave, and before the snapshot counts as good.
	Soak time.Duration
	// Deadline is how long the pushes of one wave may take. An instance that was
	// touched and has not taken the snapshot by then is a failure.
	Deadline time.Duration
	// Grace is how long an instance that has the snapshot may be out of reach
	// before that is a failure.
	Grace time.Duration
	// Retry is the wait after a push that did not come through; it doubles with
	// each further one, up to RetryMax.
	Retry, RetryMax time.Duration
	// Budget limits how often workers are replaced.
	Budget Budget
	// Blackouts are when no wave begins.
	Blackouts []Blackout
	// Gate says by which statistics an instance is healthy.
	Gate Gate
}

// DefaultPolicy is one canary, then a quarter, then all.
func DefaultPolicy() Policy {
	return Policy{
		Waves:    []Size{{Count: 1}, {Percent: 25}, {Percent: 100}},
		Soak:     30 * time.Second,
		Deadline: 5 * time.Minute,
		Grace:    10 * time.Second,
		Retry:    time.Second,
		RetryMax: 2 * time.Minute,
		Budget:   Budget{Burst: 1, Reloads: 30, Within: 10 * time.Minute, HardStopAfter: 30 * time.Minute},
		Gate: Gate{
			Requests: 100, Errors: 0.05, Times: 2, Connections: 0.1,
			CannotTell: Proceed, Extend: 10 * time.Minute, Ignore: []string{"status"},
		},
	}
}

// Size is a number of instances, absolute or in percent of the fleet, or one zone
// more.
type Size struct {
	Count   int
	Percent int
	Zone    bool
}

// oneZone is the size of a wave within one zone, as it is written.
const oneZone = "zone"

// ParseSize reads "3", "25%" or "zone".
func ParseSize(s string) (Size, error) {
	digits, percent := strings.CutSuffix(s, "%")
	n, err := strconv.Atoi(digits)
	switch {
	case s == oneZone:
		return Size{Zone: true}, nil
	case err != nil || n < 1 || (percent && n > 100):
		return Size{}, fmt.Errorf("%q is not a size of a wave: want a number such as 1, a share such as 25%%, or zone", s)
	case percent:
		return Size{Percent: n}, nil
	default:
		return Size{Count: n}, nil
	}
}

// String returns what [ParseSize] reads.
func (s Size) String() string {
	switch {
	case s.Zone:
		return oneZone
	case s.Percent > 0:
		return strconv.Itoa(s.Percent) + "%"
	}
	return strconv.Itoa(s.Count)
}

// of returns the number of instances in a fleet of n, shares rounded up.
func (s Size) of(n int) int {
	switch {
	case s.Zone:
		return n
	case s.Percent > 0:
		return (n*s.Percent + 99) / 100
	}
	return min(s.Count, n)
}

// size returns the size of a wave, counted from 0. Behind the last one come all
// that remain, or one zone after another if that is what the last one was.
func (p Policy) size(wave int) Size {
	switch n := len(p.Waves); {
	case wave < n:
		return p.Waves[wave]
	case n > 0 && p.Waves[n-1].Zone:
		return p.Waves[n-1]
	}
	return Size{Percent: 100}
}

// backoff returns the wait after the given number of failures in a row.
func (p Policy) backoff(failures int) time.Duration {
	wait := p.Retry
	for range min(failures, 30) - 1 {
		wait = min(2*wait, p.RetryMax)
	}
	return wait
}
