package core

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/hapsnap/hapsnap/pusher/observe"
	"github.com/hapsnap/hapsnap/pusher/report"
	"github.com/hapsnap/hapsnap/pusher/rollout"
	"github.com/hapsnap/hapsnap/snapshots"
	"github.com/hapsnap/hapsnap/snapshots/channel"
)

// decision is what the channel asks for, with the intent that tells one order of a person from another.
type decision struct {
	channel.Decision
	Intent string
}

// decide returns what should run. The channel may be out of reach, so failures that it does not show
// yet count as rejections too. A failure under one pin does not count against a later pin.
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

// inKnownStore returns the decision, and remembers what the pusher has seen of the store. If the pusher was started
// with a different store, that store may not hold the snapshot that the fleet runs: its URL may have a misspelled
// branch, or name the store of another fleet. Then the instances keep what they run until a person names a snapshot. A
// copy of the old store holds the snapshot, and so does a store to which the same inputs were compiled. If the pusher
// cannot read the running snapshot from anywhere, it rolls out what the new store has. Otherwise no change of an
// endpoint would reach an instance until somebody acts.
func (m *Machine) inKnownStore(d decision, now time.Time) decision {
	if !m.viewRead {
		return d
	}
	seen, good := m.state.Seen.Store, m.state.Rollout.Good
	another := seen != "" && m.view.Seen.Store != "" && m.view.Seen.Store != seen && !good.IsZero() &&
		!slices.ContainsFunc(m.view.IDs, func(id snapshots.ID) bool { return id.Short == good.Short })
	if another && m.snapshotCache.Unreadable(good) {
		m.record(observe.Warn("the store was replaced, and what runs cannot be read: its snapshots are rolled out",
			"store", m.view.Seen.Store, "before", seen, "good", good), now)
		another = false
	}
	if !another {
		m.trouble(report.AboutAnotherStore, nil, now)
		if m.view.Seen != m.state.Seen {
			m.state.Seen, m.dirty = m.view.Seen, true
		}
		return d
	}
	err := fmt.Errorf("the store is %s, and was %s: it does not hold %s, which was good; if it is the right one, pin a snapshot of it", m.view.Seen.Store, seen, good)
	m.trouble(report.AboutAnotherStore, err, now)
	if d.Because == channel.BecauseNewest && !d.Hold {
		d.Decision = channel.Decision{Because: channel.BecauseNone, Hold: true, Message: err.Error()}
		d.Intent = intentOf(d.Decision, m.view.Channel)
	}
	return d
}

// rejectionOf returns the rejection with which the channel should note a failure.
func rejectionOf(f rollout.Failure, digest snapshots.Digest, fleet string) channel.Rejection {
	return channel.Rejection{
		Digest: digest, Snapshot: f.Snapshot, Reason: report.FirstLine(f.Reason, 300), At: f.At, Fleet: fleet, Failed: true, Good: f.Good,
	}
}

// intentOf returns a text that differs between two pins or overrides, even if they name the same snapshot.
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

// wishes returns the snapshots that people named in the channel: an override, then a pin. A pause or
// a rejection removes none of them.
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

// digestLike returns a digest that begins like the one in the name of the snapshot. Callers may only compare its short
// form.
func digestLike(id snapshots.ID) snapshots.Digest {
	return snapshots.Digest("sha256:" + id.Short + strings.Repeat("0", 64-len(id.Short)))
}

// followOverride reports an override that has expired. The channel does not change at that moment, so nothing else
// reports it.
func (m *Machine) followOverride(now time.Time) {
	if !m.viewRead || !m.leadership.leadsFleet(now) {
		return
	}
	there, was := m.view.Channel.Spec.Override, m.state.Override
	inForce := there
	if there != nil && !now.Before(there.Expires) {
		inForce = nil
	}
	if sameOverride(was, inForce) {
		return
	}
	// If a person ended the override before its time, the channel has another override or none. An expired override may
	// have been removed from the channel since.
	if inForce == nil && !now.Before(was.Expires) && (there == nil || sameOverride(was, there)) {
		text := fmt.Sprintf("the override to %s%s has expired", was.Snapshot, channel.Said(was.By, ""))
		m.record(observe.Event{Log: "override has expired", Keys: []any{"by", was.By}, Reason: "OverrideExpired", Text: text, Snapshot: was.Snapshot}, now)
	}
	m.state.Override, m.dirty = inForce, true
}

func sameOverride(a, b *channel.Override) bool {
	return a == nil && b == nil || a != nil && b != nil && a.Snapshot == b.Snapshot && a.Expires.Equal(b.Expires)
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

// order returns an order of a person, in the form that the rollout takes.
func order(o *channel.Order) rollout.Order {
	if o == nil {
		return rollout.Order{}
	}
	says := channel.Said(o.By, o.Reason)
	mark := fmt.Sprintf("%s %s full=%t%s", o.Snapshot, o.At.UTC().Format(time.RFC3339), o.Full, says)
	return rollout.Order{Snapshot: o.Snapshot, Mark: mark, Full: o.Full, Says: says}
}

// rejecting notes failures in the channel, one at a time.
type rejecting struct {
	*world
	underWay bool
	after    time.Time // the next try is not before this time
}

// reject begins to write a failure into the channel if the channel does not show it yet.
func (r *rejecting) reject(now time.Time) {
	named := wishes(r.view.Channel, now)
	failures := slices.DeleteFunc(r.state.Rollout.Unrecorded(), func(f rollout.Failure) bool { return f.Withdrawn(named) })
	if len(failures) == 0 || r.underWay || now.Before(r.after) || !r.viewRead {
		return
	}
	f := failures[0]
	snapshot, _ := r.snapshotCache.Get(f.Snapshot)
	r.underWay = true
	r.begin(WriteRejection{f, r.view.Fleet, snapshot.Manifest.Spec.Digest, now})
}
