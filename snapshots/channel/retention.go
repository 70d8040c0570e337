package channel

import (
	"fmt"
	"slices"
	"time"

	"github.com/hapsnap/hapsnap/snapshots"
)

// Stored is what retention needs to know of a snapshot.
type Stored struct {
	ID   snapshots.ID
	Time time.Time // when it was published
}

// RetentionPolicy says which snapshots to keep by age: the newest Keep, at least one, and
// all that are younger than Younger.
type RetentionPolicy struct {
	Keep    int
	Younger time.Duration
}

// Kept is a snapshot that is kept, and why.
type Kept struct {
	ID     snapshots.ID
	Reason string
}

// Retain divides the snapshots of a store into those to keep and those that may be deleted,
// both ascending. Protected snapshots (pinned, last good, targeted or running anywhere) are
// kept, for the reason that protected gives.
func Retain(stored []Stored, policy RetentionPolicy, protected map[snapshots.ID]string, now time.Time) (keep []Kept, drop []snapshots.ID) {
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

// Named returns the snapshots that a channel makes run, now or once people withdraw what
// they said last, and why. Retention must keep them.
func Named(v View, now time.Time) map[snapshots.ID]string {
	out := map[snapshots.ID]string{}
	add := func(id snapshots.ID, reason string) {
		if _, ok := out[id]; !ok && !id.IsZero() {
			out[id] = reason
		}
	}
	spec := v.Channel.Spec
	if spec.Pin != nil {
		add(spec.Pin.Snapshot, "pinned")
	}
	if spec.Override != nil && now.Before(spec.Override.Expires) {
		add(spec.Override.Snapshot, "overrides for a while")
	}
	add(Want(v, now).ID, "wanted")
	v.Channel = v.Channel.Resumed()
	add(Want(v, now).ID, "wanted once resumed")
	v.Channel = v.Channel.NotOverridden().Unpinned()
	add(Want(v, now).ID, "wanted once nothing is pinned")
	return out
}
