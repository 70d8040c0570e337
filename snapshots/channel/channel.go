package channel

import (
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/hapsnap/hapsnap/internal/yamltext"
	"github.com/hapsnap/hapsnap/snapshots"
)

// Kind is the KRM kind of a [Channel].
const Kind = "Channel"

// MaxSize is how many bytes a channel may have. Stores check it before they read and
// before they write, as they do for the limits of a snapshot.
const MaxSize = 1 << 20

// ErrInvalid is returned for a channel that cannot be understood. It is a
// reason to hold what runs.
var ErrInvalid = errors.New("channel is not valid")

// Channel is the small mutable object in which people say what should run. The
// zero value says nothing: the newest snapshot runs. It is a value: the methods
// that change it return another one, and share nothing that is written to.
type Channel struct {
	APIVersion string             `json:"apiVersion"`
	Kind       string             `json:"kind"`
	Metadata   snapshots.Metadata `json:"metadata"`
	Spec       Spec               `json:"spec"`
}

// Spec is what people said. See [Want] for what comes first.
type Spec struct {
	Override        *Override      `json:"override,omitempty"`
	Pin             *Pin           `json:"pin,omitempty"`
	Pause           *Pause         `json:"pause,omitempty"`
	RequireApproval bool           `json:"requireApproval,omitempty"`
	Approved        []snapshots.ID `json:"approved,omitempty"` // ascending
	Rejected        []Rejection    `json:"rejected,omitempty"` // oldest first
	// ShareRejections has what one fleet rejects count for all fleets on the store.
	ShareRejections bool `json:"shareRejections,omitempty"`
	// Promote and Abort are about the rollout of a snapshot that is under way, and say
	// nothing of what should run.
	Promote *Order `json:"promote,omitempty"`
	Abort   *Order `json:"abort,omitempty"`
	// ConfirmEndpoints is about endpoints that a pusher keeps though its source has none
	// of them any more.
	ConfirmEndpoints *Confirmation `json:"confirmEndpoints,omitempty"`
	// AcceptedRewind is what a person gave up of the store, and of this channel.
	AcceptedRewind *AcceptedRewind `json:"acceptedRewind,omitempty"`
}

// Override makes a snapshot run for a while, whatever else is said.
type Override struct {
	Snapshot snapshots.ID `json:"snapshot"`
	By       string       `json:"by,omitempty"`
	Reason   string       `json:"reason,omitempty"`
	Expires  time.Time    `json:"expires"`
}

// Pin makes a snapshot run until it is unpinned.
type Pin struct {
	Snapshot snapshots.ID `json:"snapshot"`
	By       string       `json:"by,omitempty"`
	Reason   string       `json:"reason,omitempty"`
	At       time.Time    `json:"at,omitzero"`
}

// Order is what a person says of a rollout that is under way. Where it was said before
// the rollout began, it means nothing to that.
type Order struct {
	Snapshot snapshots.ID `json:"snapshot"`
	// Full is set for a promotion to all that remain.
	Full   bool      `json:"full,omitempty"`
	By     string    `json:"by,omitempty"`
	Reason string    `json:"reason,omitempty"`
	At     time.Time `json:"at,omitzero"`
}

// Confirmation says that endpoints are gone for good. Loss is the name that the pusher
// gave to all that it kept at that time; of anything else the confirmation says nothing.
type Confirmation struct {
	Loss   string    `json:"loss"`
	By     string    `json:"by,omitempty"`
	Reason string    `json:"reason,omitempty"`
	At     time.Time `json:"at,omitzero"`
}

// Pause holds what runs.
type Pause struct {
	By     string    `json:"by,omitempty"`
	Reason string    `json:"reason,omitempty"`
	At     time.Time `json:"at,omitzero"`
}

// Rejection keeps a content from being rolled out again. Snapshot is the one
// that it was seen in; every other snapshot of the same content is rejected too.
type Rejection struct {
	Digest   snapshots.Digest `json:"digest"`
	Snapshot snapshots.ID     `json:"snapshot"`
	Reason   string           `json:"reason,omitempty"`
	At       time.Time        `json:"at,omitzero"`
	// Fleet is the only fleet that it counts for, "" for all of them.
	Fleet string `json:"fleet,omitempty"`
	// Failed is set by a pusher whose rollout failed, and Good is what the fleet went
	// back to, zero if nothing was known to be good. A person who rejects a snapshot
	// has the next older one run; a pusher holds what is good.
	Failed bool         `json:"failed,omitempty"`
	Good   snapshots.ID `json:"good,omitzero"`
}

// CountsFor reports whether the rejection counts for a fleet, where the channel does
// not share rejections; "" asks for any.
func (r Rejection) CountsFor(fleet string) bool {
	return r.Fleet == "" || fleet == "" || r.Fleet == fleet
}

// Pinned returns the channel with the pin. To pin is to say that this content
// should run, so a rejection of it is withdrawn.
func (c Channel) Pinned(p Pin) Channel {
	p.At = stableTime(p.At)
	c.Spec.Pin = &p
	return c.withoutRejections(func(r Rejection) bool { return p.Snapshot.Names(r.Digest) })
}

// Unpinned returns the channel without a pin: the newest snapshot runs again.
func (c Channel) Unpinned() Channel {
	c.Spec.Pin = nil
	return c
}

// Overridden returns the channel with the override, which must expire. A
// rejection of its content is withdrawn.
func (c Channel) Overridden(o Override) Channel {
	o.Expires = stableTime(o.Expires)
	c.Spec.Override = &o
	return c.withoutRejections(func(r Rejection) bool { return o.Snapshot.Names(r.Digest) })
}

// NotOverridden returns the channel without an override.
func (c Channel) NotOverridden() Channel {
	c.Spec.Override = nil
	return c
}

// Promoted returns the channel with the order to let a rollout go on at once.
func (c Channel) Promoted(o Order) Channel {
	o.At = stableTime(o.At)
	c.Spec.Promote = &o
	return c
}

// Aborted returns the channel with the order to undo a rollout.
func (c Channel) Aborted(o Order) Channel {
	o.At = stableTime(o.At)
	c.Spec.Abort = &o
	return c
}

// Confirmed returns the channel with the confirmation.
func (c Channel) Confirmed(o Confirmation) Channel {
	o.At = stableTime(o.At)
	c.Spec.ConfirmEndpoints = &o
	return c
}

// Paused returns the channel with the pause.
func (c Channel) Paused(p Pause) Channel {
	p.At = stableTime(p.At)
	c.Spec.Pause = &p
	return c
}

// Resumed returns the channel without a pause.
func (c Channel) Resumed() Channel {
	c.Spec.Pause = nil
	return c
}

// WithApproval returns the channel with approval required or not. What runs at
// the time should be approved with it, or nothing newer than the last approved
// snapshot would be wanted.
func (c Channel) WithApproval(required bool) Channel {
	c.Spec.RequireApproval = required
	return c
}

// Approve returns the channel with the snapshot approved.
func (c Channel) Approve(id snapshots.ID) Channel {
	c.Spec.Approved = append(slices.Clone(c.Spec.Approved), id)
	slices.SortFunc(c.Spec.Approved, snapshots.ID.Compare)
	c.Spec.Approved = slices.Compact(c.Spec.Approved)
	return c
}

// Reject returns the channel with the content rejected; an earlier rejection of
// it for the same fleet, or that for all fleets, is replaced.
func (c Channel) Reject(r Rejection) Channel {
	r.At = stableTime(r.At)
	c = c.withoutRejections(func(old Rejection) bool { return old.Digest == r.Digest && old.Fleet == r.Fleet })
	c.Spec.Rejected = append(c.Spec.Rejected, r)
	return c
}

// Retry returns the channel with the content no longer rejected by anybody, and
// whether it was.
func (c Channel) Retry(d snapshots.Digest) (Channel, bool) { return c.RetryFor(d, "") }

// RetryFor is [Channel.Retry] for one fleet: what counts for all, or for another fleet,
// stays. "" is all.
func (c Channel) RetryFor(d snapshots.Digest, fleet string) (Channel, bool) {
	next := c.withoutRejections(func(r Rejection) bool { return r.Digest == d && (fleet == "" || r.Fleet == fleet) })
	return next, len(next.Spec.Rejected) < len(c.Spec.Rejected)
}

// Rejection returns the rejection of the snapshot's content, if it is rejected for any
// fleet.
func (c Channel) Rejection(id snapshots.ID) (Rejection, bool) { return c.RejectionFor(id, "") }

// RejectionFor returns the rejection of the snapshot's content that counts for a fleet.
// One for all fleets comes before that of a fleet: a person said it.
func (c Channel) RejectionFor(id snapshots.ID, fleet string) (Rejection, bool) {
	var found Rejection
	counts := false
	for _, r := range c.Spec.Rejected {
		if !id.Names(r.Digest) || !(c.Spec.ShareRejections || r.CountsFor(fleet)) {
			continue
		}
		if r.Fleet == "" {
			return r, true
		}
		if !counts || r.Fleet == fleet {
			found, counts = r, true
		}
	}
	return found, counts
}

func (c Channel) withoutRejections(drop func(Rejection) bool) Channel {
	c.Spec.Rejected = slices.DeleteFunc(slices.Clone(c.Spec.Rejected), drop)
	return c
}

// stableTime is a time as YAML keeps it: UTC, in seconds.
func stableTime(t time.Time) time.Time { return t.UTC().Truncate(time.Second) }

// Marshal returns the channel as YAML, the same bytes for the same value.
func (c Channel) Marshal() ([]byte, error) {
	c.APIVersion, c.Kind = snapshots.APIVersion, Kind
	if c.Metadata.Name == "" {
		c.Metadata.Name = "channel"
	}
	if err := c.check(); err != nil {
		return nil, fmt.Errorf("write channel: %w", err)
	}
	return yamltext.Marshal(c)
}

// Parse reads a channel, which people may have edited. What it does not
// know is refused, for it may be what they wanted most; the error wraps
// [ErrInvalid].
func Parse(data []byte) (Channel, error) {
	var c Channel
	if err := snapshots.DecodeYAML(data, MaxSize, &c); err != nil {
		return Channel{}, fmt.Errorf("%w: %w", ErrInvalid, err)
	}
	if c.APIVersion != snapshots.APIVersion || c.Kind != Kind {
		return Channel{}, fmt.Errorf("%w: it is %q %q, not %s %s", ErrInvalid, c.APIVersion, c.Kind, snapshots.APIVersion, Kind)
	}
	return c, c.check()
}

// check refuses what says less than it seems to.
func (c Channel) check() error {
	switch {
	case c.Spec.Pin != nil && c.Spec.Pin.Snapshot.IsZero():
		return fmt.Errorf("%w: spec.pin names no snapshot", ErrInvalid)
	case c.Spec.Override != nil && c.Spec.Override.Snapshot.IsZero():
		return fmt.Errorf("%w: spec.override names no snapshot", ErrInvalid)
	case c.Spec.Override != nil && c.Spec.Override.Expires.IsZero():
		return fmt.Errorf("%w: spec.override does not expire", ErrInvalid)
	case c.Spec.Promote != nil && c.Spec.Promote.Snapshot.IsZero():
		return fmt.Errorf("%w: spec.promote names no snapshot", ErrInvalid)
	case c.Spec.Abort != nil && c.Spec.Abort.Snapshot.IsZero():
		return fmt.Errorf("%w: spec.abort names no snapshot", ErrInvalid)
	case c.Spec.ConfirmEndpoints != nil && c.Spec.ConfirmEndpoints.Loss == "":
		return fmt.Errorf("%w: spec.confirmEndpoints names no loss", ErrInvalid)
	}
	if r := c.Spec.AcceptedRewind; r != nil {
		if err := r.check(); err != nil {
			return err
		}
	}
	for i, r := range c.Spec.Rejected {
		if !r.Digest.Valid() {
			return fmt.Errorf("%w: spec.rejected[%d] has the digest %q", ErrInvalid, i, r.Digest)
		}
	}
	return nil
}
