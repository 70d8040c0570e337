package pusher

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/hapsnap/hapsnap/pusher/binding"
	"github.com/hapsnap/hapsnap/pusher/observe"

	"github.com/hapsnap/hapsnap/pusher/rollout"
	"github.com/hapsnap/hapsnap/snapshots"
	"github.com/hapsnap/hapsnap/snapshots/channel"
)

// decision is what the channel asks for, and by which wish.
type decision struct {
	channel.Decision
	Intent string
}

// decide returns what should run. Failures that the channel does not show yet
// count as if it did, for it may be out of reach; but what failed under one pin
// is no reason against a later one.
func decide(view channel.View, failed []rollout.Failure, now time.Time) decision {
	d := channel.Want(view, now)
	intent := intentOf(d, view.Channel)
	for _, f := range failed {
		if _, shown := view.Channel.RejectionFor(f.Snapshot, view.Fleet); shown || f.Recorded {
			continue
		}
		if d.Because == channel.BecauseNewest || f.Intent == intent {
			view.Channel = view.Channel.Reject(rejectionOf(f, digestLike(f.Snapshot), view.Fleet))
		}
	}
	d = channel.Want(view, now)
	return decision{d, intentOf(d, view.Channel)}
}

// rejectionOf returns what the channel is to say of a failure.
func rejectionOf(f rollout.Failure, digest snapshots.Digest, fleet string) channel.Rejection {
	return channel.Rejection{
		Digest: digest, Snapshot: f.Snapshot, Reason: observe.FirstLine(f.Reason, 300), At: f.At, Fleet: fleet, Failed: true, Good: f.Good,
	}
}

// intentOf tells one wish from another, also where both name the same snapshot.
func intentOf(d channel.Decision, c channel.Channel) string {
	switch {
	case d.Because == channel.BecausePin && c.Spec.Pin != nil:
		return pinIntent(c.Spec.Pin)
	case d.Because == channel.BecauseOverride && c.Spec.Override != nil:
		return overrideIntent(c.Spec.Override)
	}
	return string(d.Because)
}

func pinIntent(p *channel.Pin) string { return "pin " + p.At.UTC().Format(time.RFC3339) }

func overrideIntent(o *channel.Override) string {
	return "override " + o.Expires.UTC().Format(time.RFC3339)
}

// wishes returns what people named in the channel, what comes first before the other.
// A pause and a rejection take nothing away from it.
func wishes(c channel.Channel, now time.Time) []rollout.Wish {
	var out []rollout.Wish
	if o := c.Spec.Override; o != nil && now.Before(o.Expires) {
		out = append(out, rollout.Wish{Snapshot: o.Snapshot, Intent: overrideIntent(o)})
	}
	if p := c.Spec.Pin; p != nil {
		out = append(out, rollout.Wish{Snapshot: p.Snapshot, Intent: pinIntent(p)})
	}
	return out
}

// digestLike returns a digest that the snapshot's name stands for. It is only
// good for being compared with names.
func digestLike(id snapshots.ID) snapshots.Digest {
	return snapshots.Digest("sha256:" + id.Short + strings.Repeat("0", 64-len(id.Short)))
}

// rejected lists the short digests that the channel rejects for the fleet.
func rejected(v channel.View) []string {
	out := make([]string, 0, len(v.Channel.Spec.Rejected))
	for _, r := range v.Channel.Spec.Rejected {
		if v.Channel.Spec.ShareRejections || r.CountsFor(v.Fleet) {
			out = append(out, r.Digest.Short())
		}
	}
	return out
}

// order returns what a person said of a rollout, as the rollout hears it.
func order(o *channel.Order) rollout.Order {
	if o == nil {
		return rollout.Order{}
	}
	says := ""
	if o.By != "" {
		says += " by " + o.By
	}
	if o.Reason != "" {
		says += ": " + o.Reason
	}
	mark := fmt.Sprintf("%s %s full=%t%s", o.Snapshot, o.At.UTC().Format(time.RFC3339), o.Full, says)
	return rollout.Order{Snapshot: o.Snapshot, Mark: mark, Full: o.Full, Says: says}
}

// What a snapshot needs and the pusher cannot have is known before the first wave.
// These are the rules:
//
//   - A snapshot with live endpoints, or with something of Secrets, and no source of live
//     data, cannot be bound. It waits, whoever wants it, and what runs is left as it is.
//   - A list of EndpointSlices, or a Secret, that may not be read is no sign that there
//     is nothing. A snapshot that needs it waits, if the last good one can do without it.
//     Once the permission is there, it goes on by itself.
//   - What the last good snapshot lacks as well is no reason to wait: one missing role
//     must not hold up changes of everybody else. Its endpoints stay as they were. But a
//     Service that only the newer snapshot has, in a namespace that may not be read, would
//     get no servers, and the snapshot waits.
//   - A snapshot that a person named, by a pin or an override, does not wait for
//     permissions: a rollback in an incident must not depend on the role of one tenant.
//   - A Secret that is not there (404) is allowed, as ever: its owner may add it later.
//   - The fleet is not Healthy while a snapshot in use lacks anything, whatever was
//     decided.

// newlyLacking returns what a snapshot lacks that the last good one does not.
func newlyLacking(wanted, good []string) []string {
	return slices.DeleteFunc(slices.Clone(wanted), func(lack string) bool { return slices.Contains(good, lack) })
}

// lacks reports whether the wanted snapshot has to wait for what the pusher cannot have,
// and what that is.
func (e *engine) lacks() []string {
	wanted, atHand := e.bindings.Of(e.decision.ID)
	if !atHand {
		return nil
	}
	good, _ := e.bindings.Of(e.state.Rollout.Good)
	out := lacking(wanted, good, e.decision.Because)
	if wanted.Known && e.decision.Because == channel.BecauseNewest {
		out = append(out, e.live.NewlyUnread(wanted, good)...)
	}
	return out
}

// lacking is lacks of a snapshot that is wanted for a reason, after a good one.
func lacking(wanted, good binding.Prepared, because channel.Reason) []string {
	switch {
	case !wanted.Known:
		return wanted.Lacks // it cannot be bound
	case because != channel.BecauseNewest:
		return nil
	}
	return newlyLacking(wanted.Lacks, good.Lacks)
}

// waitForNeeds returns the waits with the one for what the wanted snapshot lacks.
func (e *engine) waitForNeeds(waits []rollout.Wait) []rollout.Wait {
	if lacks := e.lacks(); len(lacks) > 0 && !e.decision.Hold {
		waits = append(slices.Clone(waits), rollout.Wait{
			For: fmt.Sprintf("what %s needs, since the pusher %s", e.decision.ID, some(lacks)),
		})
	}
	return waits
}

// troubleWithNeeds tells what the snapshots in use need and the pusher cannot have.
func (e *engine) troubleWithNeeds(now time.Time) {
	needing := map[string][]string{}
	for id, p := range e.bindings.All() {
		for _, lack := range p.Lacks {
			needing[lack] = append(needing[lack], id.String())
		}
	}
	e.lacking = len(needing)
	if len(needing) == 0 {
		e.trouble(observe.AboutNeeds, nil, now)
		return
	}
	lacks := slices.Sorted(maps.Keys(needing))
	ids := needing[lacks[0]]
	text := fmt.Sprintf("the pusher %s (needed by %s)", some(lacks), strings.Join(ids[max(0, len(ids)-2):], " and "))
	if waiting := e.lacks(); len(waiting) > 0 {
		text += fmt.Sprintf("; %s waits for it, and what runs is left as it is", e.decision.ID)
	} else {
		text += "; endpoints that were known are kept"
	}
	if strings.HasPrefix(lacks[0], "may not ") {
		text += "; pusher rbac prints the roles that it needs"
	}
	e.trouble(observe.AboutNeeds, errors.New(text), now)
}

// some joins the first of several texts.
func some(list []string) string {
	const most = 3
	if more := len(list) - most; more > 0 {
		return fmt.Sprintf("%s, and %d more", strings.Join(list[:most], ", "), more)
	}
	return strings.Join(list, ", ")
}
