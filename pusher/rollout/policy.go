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
	// from the start of the rollout. After the last one come all that remain.
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
	}
}

// Size is a number of instances, absolute or in percent of the fleet.
type Size struct {
	Count   int
	Percent int
}

// ParseSize reads "3" or "25%".
func ParseSize(s string) (Size, error) {
	digits, percent := strings.CutSuffix(s, "%")
	n, err := strconv.Atoi(digits)
	switch {
	case err != nil || n < 1 || (percent && n > 100):
		return Size{}, fmt.Errorf("%q is not a size of a wave: want a number such as 1, or a share such as 25%%", s)
	case percent:
		return Size{Percent: n}, nil
	default:
		return Size{Count: n}, nil
	}
}

// String returns what [ParseSize] reads.
func (s Size) String() string {
	if s.Percent > 0 {
		return strconv.Itoa(s.Percent) + "%"
	}
	return strconv.Itoa(s.Count)
}

// of returns the number of instances in a fleet of n, shares rounded up.
func (s Size) of(n int) int {
	if s.Percent > 0 {
		return (n*s.Percent + 99) / 100
	}
	return min(s.Count, n)
}

// goal returns how many of n instances should have the snapshot after the wave,
// counted from 0.
func (p Policy) goal(wave, n int) int {
	if wave >= len(p.Waves) {
		return n
	}
	return p.Waves[wave].of(n)
}

// backoff returns the wait after the given number of failures in a row.
func (p Policy) backoff(failures int) time.Duration {
	wait := p.Retry
	for range min(failures, 30) - 1 {
		wait = min(2*wait, p.RetryMax)
	}
	return wait
}
