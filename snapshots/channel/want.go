package channel

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/hapsnap/hapsnap/internal/printable"
	"github.com/hapsnap/hapsnap/snapshots"
)

// View is what a store holds: the names of all complete snapshots, ascending,
// and the channel.
type View struct {
	IDs     []snapshots.ID
	Channel Channel
	// Refused are snapshots, ascending, that the store holds but that no accepted key has
	// signed. They never run.
	Refused []Refused
	// HeadOnly is set by stores in which people choose the newest snapshot by a merge. It is not known which
	// older ones were ever chosen, so an older one runs only if a person names it.
	HeadOnly bool
	// Seen is what the reader knows about the store by now. The reader gives it back to the store after a
	// restart.
	Seen Seen
	// Runs is the newest snapshot that the fleet was, or is being, brought to. If
	// signatures are required and it is among the refused, no older snapshot follows it
	// unless a person names one.
	Runs snapshots.ID
	// Fleet is the fleet that asks. Rejections of other fleets do not count for it, unless
	// the channel shares rejections. With "" all rejections count.
	Fleet string
}

// Refused is a snapshot without an accepted signature, and the reason.
type Refused struct {
	ID     snapshots.ID
	Reason string
}

// refusal returns why a snapshot is refused, or "".
func (v View) refusal(id snapshots.ID) string {
	for _, r := range v.Refused {
		if r.ID == id {
			return r.Reason
		}
	}
	return ""
}

// rejection returns the rejection of a content that counts for the view's fleet.
func (v View) rejection(id snapshots.ID) (Rejection, bool) {
	return v.Channel.RejectionFor(id, v.Fleet)
}

// Head returns the newest snapshot, or the zero ID if there is none.
func (v View) Head() snapshots.ID {
	if len(v.IDs) == 0 {
		return snapshots.ID{}
	}
	return v.IDs[len(v.IDs)-1]
}

// Reason says what decided which snapshot should run.
type Reason string

// The reasons of a [Decision]; the last four only ever hold.
const (
	BecauseOverride Reason = "override"
	BecausePin      Reason = "pin"
	BecauseNewest   Reason = "newest"
	BecausePause    Reason = "pause"
	BecauseEmpty    Reason = "empty" // the store holds no snapshot
	BecauseNone     Reason = "none"  // no snapshot is approved and not rejected
	// BecauseUntrusted means that what should run has no accepted signature.
	BecauseUntrusted Reason = "untrusted"
)

// Decision says which snapshot should run. If Hold is set there is none, and what runs must
// go on running. Message is the reason, for people.
type Decision struct {
	ID      snapshots.ID
	Because Reason
	Hold    bool
	Message string
}

// HoldsNamed reports whether a person named a snapshot, with a pin or an override, that cannot run.
func (d Decision) HoldsNamed() bool {
	return d.Hold && (d.Because == BecausePin || d.Because == BecauseOverride)
}

func hold(because Reason, format string, args ...any) Decision {
	return Decision{Because: because, Hold: true, Message: fmt.Sprintf(format, args...)}
}

// Want decides what should run at the time now. A pause keeps what runs. Otherwise the
// first of these decides: an override that has not expired; the pin; the newest snapshot
// that is not rejected and, if approval is required, is approved. After a failed rollout
// that is the snapshot that was good before it, and nothing between them. An override or a
// pin whose snapshot is missing or rejected is not passed over: what runs is kept. The
// pusher itself knows about an undo in progress, which comes between pin and newest.
func Want(v View, now time.Time) Decision {
	spec := v.Channel.Spec
	switch {
	case len(v.IDs) == 0 && len(v.Refused) > 0:
		return hold(BecauseUntrusted, "no snapshot of the store is signed by who may: %s", v.Refused[len(v.Refused)-1].Reason)
	case len(v.IDs) == 0:
		return hold(BecauseEmpty, "the store holds no snapshot")
	case spec.Pause != nil:
		return hold(BecausePause, "paused%s", Said(spec.Pause.By, spec.Pause.Reason))
	case spec.Override != nil && now.Before(spec.Override.Expires):
		o := spec.Override
		return v.named(o.Snapshot, BecauseOverride, fmt.Sprintf("overridden until %s%s", o.Expires.UTC().Format(time.RFC3339), Said(o.By, o.Reason)))
	case spec.Pin != nil:
		return v.named(spec.Pin.Snapshot, BecausePin, "pinned"+Said(spec.Pin.By, spec.Pin.Reason))
	}
	return v.newest()
}

// named decides for a snapshot that a person named.
func (v View) named(id snapshots.ID, because Reason, message string) Decision {
	if why := v.refusal(id); why != "" {
		return hold(because, "%s is %s, but %s", id, message, why)
	}
	if !slices.Contains(v.IDs, id) {
		return hold(because, "%s is %s, but the store does not hold it", id, message)
	}
	if r, ok := v.rejection(id); ok {
		return hold(because, "%s is %s, but was rejected%s", id, message, Said("", r.Reason))
	}
	return Decision{ID: id, Because: because, Message: id.String() + " is " + message}
}

// newest decides if no person named a snapshot. After a failure it chooses the snapshot that was good then. It
// tries nothing between the two: no person wanted those, and if the fleet itself is broken, each of them would
// fail in turn.
func (v View) newest() Decision {
	spec := v.Channel.Spec
	rejected, waiting := 0, 0
	if v.HeadOnly {
		v.IDs = []snapshots.ID{v.Head()}
	}
	var failed *Rejection
	for _, id := range slices.Backward(v.IDs) {
		if why := v.refusal(v.Runs); why != "" && id.Revision < v.Runs.Revision {
			return hold(BecauseUntrusted, "%s runs, and is no longer accepted: it goes on until a newer one is signed, or a person pins one: %s", v.Runs, why)
		}
		if r, ok := v.rejection(id); ok {
			rejected++
			if failed == nil || failed.Good.Short == id.Short {
				failed = r.failure()
			}
		} else if failed != nil && failed.Good.Short != id.Short {
			continue
		} else if spec.RequireApproval && !slices.Contains(spec.Approved, id) {
			waiting++
		} else {
			return Decision{ID: id, Because: BecauseNewest, Message: fmt.Sprintf("%s is the newest%s", id, passedOver(rejected, waiting))}
		}
	}
	switch {
	case failed == nil:
		return hold(BecauseNone, "no snapshot may run: %s", counts(rejected, waiting))
	case failed.Good.IsZero():
		return hold(BecauseNone, "%s failed, and no snapshot is known to be good: mend what it says, then pusher retry, or publish another%s", failed.Snapshot, Said("", failed.Reason))
	}
	return hold(BecauseNone, "%s failed, and the store does not offer %s, which was good: what runs goes on", failed.Snapshot, failed.Good)
}

// failure returns the rejection if it came from a failed rollout, otherwise nil.
func (r Rejection) failure() *Rejection {
	if !r.Failed {
		return nil
	}
	return &r
}

// passedOver lists the newer snapshots that were passed over, for the message.
func passedOver(rejected, waiting int) string {
	switch {
	case rejected > 0 && waiting > 0:
		return fmt.Sprintf(" that may run (%s)", counts(rejected, waiting))
	case rejected > 0:
		return fmt.Sprintf(" that is not rejected (%s)", counts(rejected, waiting))
	case waiting > 0:
		return fmt.Sprintf(" that is approved (%s)", counts(rejected, waiting))
	}
	return ""
}

func counts(rejected, waiting int) string {
	var out []string
	if rejected > 0 {
		out = append(out, fmt.Sprintf("%d rejected", rejected))
	}
	if waiting > 0 {
		out = append(out, fmt.Sprintf("%d waiting for approval", waiting))
	}
	return strings.Join(out, ", ")
}

// Said says who said something, and why, as text that may be shown.
func Said(by, reason string) string {
	by, reason = printable.Text(by), printable.Text(reason)
	if by != "" {
		by = " by " + by
	}
	if reason != "" {
		reason = ": " + reason
	}
	return by + reason
}

// Previous returns the snapshot that a rollback without an argument goes to. From is what should run once
// nothing is paused. The result is the last good snapshot before it with another content. Good lists the
// snapshots that the whole fleet ran, oldest first: the last of them that is older and not rejected counts.
// Without one it is the snapshot that would have run if the newer ones had not been published. If it is not
// known what should run, or nothing is before it, the decision is to hold.
func Previous(v View, good []snapshots.ID, now time.Time) (from snapshots.ID, to Decision) {
	v.Channel = v.Channel.Resumed()
	want := Want(v, now)
	if want.Hold {
		return snapshots.ID{}, want
	}
	older := v.IDs[:slices.Index(v.IDs, want.ID)]
	v.IDs = slices.DeleteFunc(slices.Clone(older), func(id snapshots.ID) bool { return id.Short == want.ID.Short })
	for _, id := range slices.Backward(good) {
		if _, rejected := v.rejection(id); slices.Contains(v.IDs, id) && !rejected {
			return want.ID, Decision{ID: id, Because: BecauseNewest, Message: fmt.Sprintf("%s is the last that the whole fleet ran", id)}
		}
	}
	if v.HeadOnly {
		return want.ID, hold(BecauseNone, "which snapshot was merged before %s is not known", want.ID)
	}
	v.Channel = v.Channel.NotOverridden().Unpinned().walked()
	to = Want(v, now)
	switch {
	case to.Because == BecauseEmpty && len(older) > 0:
		to.Message = fmt.Sprintf("all that the store holds and is older than %s is of the same content", want.ID)
	case to.Because == BecauseEmpty:
		to.Message = fmt.Sprintf("the store holds nothing older than %s", want.ID)
	}
	return want.ID, to
}

// walked returns the channel without the failures that keep older snapshots from running, since here a person
// asks for an older one.
func (c Channel) walked() Channel {
	c.Spec.Rejected = slices.Clone(c.Spec.Rejected)
	for i := range c.Spec.Rejected {
		c.Spec.Rejected[i].Failed = false
	}
	return c
}

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

// Retain divides the snapshots of a store into those to keep and those that may be deleted, both ascending. It
// keeps protected snapshots (pinned, last good, targeted or running anywhere) for the reason that protected
// gives.
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

// Named returns the snapshots that a channel makes run, now or once people withdraw what they said last, and
// why. Retention must keep them.
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

// Rolling is what a pusher reported about its rollouts.
type Rolling struct {
	At     time.Time    // when it said so; zero: nothing is known
	Target snapshots.ID // of the rollout under way; zero: there was none
}

// orderGrace is how long an order at least stays in the channel although no rollout of this fleet heeds it.
// Another fleet on the store may have such a rollout, or a pusher that restarts.
const orderGrace = 10 * time.Minute

// Stale is something in a channel that no longer has an effect.
type Stale struct {
	Verb     Verb // the verb that put it there, or [VerbOverrideEnd]
	Snapshot snapshots.ID
	Message  string // for people
}

// Tidied returns the channel without what can have no effect any more, and lists what it removed: an override
// that is over, approvals of snapshots that are gone, orders about rollouts that ended. It keeps whatever might
// still count. Only an act of a person tidies: a pusher knows its own fleet alone, and an order may be for
// another fleet of the store that is away for now.
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
