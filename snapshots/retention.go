package snapshots

import (
	"fmt"
	"slices"
	"time"
)

// Stored is a snapshot as retention sees it.
type Stored struct {
	ID   ID
	Time time.Time // when it was published
}

// RetentionPolicy says which snapshots to keep for their own sake: the newest
// Keep (at least the newest one), and everything younger than Younger.
type RetentionPolicy struct {
	Keep    int
	Younger time.Duration
}

// Kept is a snapshot that is kept, and why.
type Kept struct {
	ID     ID
	Reason string
}

// Retain divides the snapshots of a store into those to keep and those that may
// be deleted, both ascending. What is protected (pinned, last good, targeted or
// running anywhere) is kept for the reason given there.
func Retain(stored []Stored, policy RetentionPolicy, protected map[ID]string, now time.Time) (keep []Kept, drop []ID) {
	all := slices.SortedFunc(slices.Values(stored), func(a, b Stored) int { return a.ID.Compare(b.ID) })
	newest := max(policy.Keep, 1)
	for i, s := range all {
		reason, ok := protected[s.ID]
		switch {
		case ok:
		case i >= len(all)-newest:
			reason = fmt.Sprintf("among the newest %d", newest)
		case now.Sub(s.Time) < policy.Younger:
			reason = "younger than " + policy.Younger.String()
		default:
			drop = append(drop, s.ID)
			continue
		}
		keep = append(keep, Kept{s.ID, reason})
	}
	return keep, drop
}
