package channel

import (
	"fmt"
	"slices"
	"time"

	"github.com/hapsnap/hapsnap/snapshots"
)

// Rolling is what a pusher said of its rollouts.
type Rolling struct {
	At     time.Time    // when it said so; zero: nothing is known
	Target snapshots.ID // of the rollout under way; zero: there was none
}

// orderGrace is how long an order stays in the channel at least that no rollout of one fleet
// is there to heed: other fleets on the store may have one, and a pusher that restarts.
const orderGrace = 10 * time.Minute

// Stale is something in a channel that no longer has an effect.
type Stale struct {
	Verb     Verb // which would have put it there, or [VerbOverrideEnd]
	Snapshot snapshots.ID
	Message  string // for people
}

// Tidied returns the channel without what can have no effect any more, and lists what that
// was: an override that is over, approvals of snapshots that are gone, orders about rollouts
// that ended. What might still count stays. Only an act of a person tidies: a pusher knows its own
// fleet alone, and an order may be for another fleet of the same store that is away for now.
func (c Channel) Tidied(v View, r Rolling, now time.Time) (Channel, []Stale) {
	var stale []Stale
	if o := c.Spec.Override; o != nil && !now.Before(o.Expires) {
		c.Spec.Override = nil
		stale = append(stale, Stale{VerbOverrideEnd, o.Snapshot, fmt.Sprintf("the override with %s is over since %s", o.Snapshot, o.Expires.UTC().Format(time.RFC3339))})
	}
	gone := func(id snapshots.ID) bool {
		return len(v.IDs) > 0 && !v.HeadOnly && id.Compare(v.Head()) <= 0 && !slices.Contains(v.IDs, id) && v.refusal(id) == ""
	}
	var approved []snapshots.ID
	for _, id := range c.Spec.Approved {
		if gone(id) {
			stale = append(stale, Stale{VerbApprove, id, fmt.Sprintf("the approval of %s: the store no longer holds it", id)})
			continue
		}
		approved = append(approved, id)
	}
	c.Spec.Approved = approved
	for _, order := range []struct {
		verb Verb
		at   **Order
	}{{VerbPromote, &c.Spec.Promote}, {VerbAbort, &c.Spec.Abort}} {
		o := *order.at
		if o == nil {
			continue
		}
		var why string
		switch {
		case gone(o.Snapshot):
			why = "the store no longer holds it"
		case slices.ContainsFunc(c.Spec.Rejected, func(r Rejection) bool {
			return r.Fleet == "" && o.Snapshot.Names(r.Digest) && r.At.After(o.At)
		}):
			why = "it was rejected since"
		case r.At.Sub(o.At) > orderGrace && r.Target != o.Snapshot:
			why = "its rollout has ended"
		default:
			continue
		}
		*order.at = nil
		stale = append(stale, Stale{order.verb, o.Snapshot, fmt.Sprintf("the order to %s %s: %s", order.verb, o.Snapshot, why)})
	}
	return c, stale
}
