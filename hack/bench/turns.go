package main

import (
	"context"
	"runtime"
	"slices"
	"time"
)

// The turns of a row: at least, so that there is a median; and at most.
const (
	leastTurns = 3
	mostTurns  = 25
)

// step is something to be timed. What it prepares is not: it returns what is timed.
type step func(ctx context.Context) (timed func() error, err error)

// plain is a step that prepares nothing.
func plain(timed func() error) step {
	return func(context.Context) (func() error, error) { return timed, nil }
}

// inTurns times two steps in turns, and returns the medians. A first turn, in which caches are filled,
// does not count.
func (b *bench) inTurns(ctx context.Context, limit, work step) (Cell, error) {
	var limits, works []time.Duration
	began := time.Now()
	for n := 0; n <= mostTurns && (n <= leastTurns || time.Since(began) < b.budget); n++ {
		for _, side := range []struct {
			step
			took *[]time.Duration
		}{{limit, &limits}, {work, &works}} {
			took, err := timed(ctx, side.step)
			if err != nil {
				return Cell{}, err
			}
			if n > 0 {
				*side.took = append(*side.took, took)
			}
		}
	}
	return Cell{Limit: median(limits).Seconds(), Work: median(works).Seconds(), Turns: len(works)}, nil
}

// timed times one step. The garbage of what ran before is not its own.
func timed(ctx context.Context, s step) (time.Duration, error) {
	if err := ctx.Err(); err != nil {
		return 0, err
	}
	do, err := s(ctx)
	if err != nil {
		return 0, err
	}
	runtime.GC()
	began := time.Now()
	err = do()
	return time.Since(began), err
}

func median(list []time.Duration) time.Duration {
	return slices.Sorted(slices.Values(list))[len(list)/2]
}
