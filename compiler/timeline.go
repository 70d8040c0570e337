package compiler

import (
	"context"
	"time"
)

// timeline is one compile as it is seen from outside: how long each stage took.
// The rounds of a compile that leaves out objects add up, so that the stages say
// what a compile spends its time on.
type timeline struct{ took map[string]time.Duration }

func newTimeline() *timeline { return &timeline{took: map[string]time.Duration{}} }

// stage is the timeline's [Stages].
func (t *timeline) stage(ctx context.Context, name string) (context.Context, func(error)) {
	began := time.Now()
	return ctx, func(error) { t.took[name] += time.Since(began) }
}
