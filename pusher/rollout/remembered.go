package rollout

import (
	"slices"
	"time"
)

// keptFailures is how many failures are remembered. A failure that is forgotten was tried before
// a hundred others, and the channel says that it is rejected unless that could not be
// written all the while.
const keptFailures = 100

// latest returns the failures without the oldest of those that are too many: first of
// those that the channel shows.
func latest(list []Failure) []Failure {
	excess := len(list) - keptFailures
	if excess <= 0 {
		return list
	}
	for _, recorded := range []bool{true, false} {
		newest := list[len(list)-1]
		list = slices.DeleteFunc(list, func(f Failure) bool {
			drop := excess > 0 && f.Recorded == recorded && f != newest
			if drop {
				excess--
			}
			return drop
		})
	}
	return list
}

// counted returns the reloads of an instance that a limit counts, oldest first: of those
// within the time the last ones, as many as it may have, and of the old workers as many
// as it may have that live longest. There may be more where an undo waited for no limit.
// One more is kept, for the push that is under way may give its own back.
func (b Budget) counted(list []Reload, now time.Time) []Reload {
	if b.Reloads > 0 {
		b.Reloads++
	}
	if b.OldWorkers > 0 {
		b.OldWorkers++
	}
	lives := make([]time.Time, 0, len(list))
	for _, r := range list {
		lives = append(lives, r.Gone)
	}
	slices.SortFunc(lives, func(x, y time.Time) int { return y.Compare(x) })
	out := make([]Reload, 0, len(list))
	crowd := 0
	for i, r := range list {
		recent := i >= len(list)-b.Reloads && r.At.Add(b.Within).After(now)
		old := crowd < b.OldWorkers && r.Gone.After(now) && !r.Gone.Before(lives[min(b.OldWorkers, len(lives))-1])
		if old {
			crowd++
		}
		if recent || old {
			out = append(out, r)
		}
	}
	return out
}
