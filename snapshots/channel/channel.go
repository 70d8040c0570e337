// Package channel decides which snapshot should run.
//
// A [Channel] is the small mutable object of a store in which people and pushers say what
// they want: pin, override, pause, approve, reject. A [View] is the channel together with
// the IDs of all snapshots of the store. [Want] makes a [Decision] of a view and the time.
// [Previous] decides what a rollback goes to. If anything is missing, unreadable, unsigned
// or rewound, the decision is to keep what runs.
//
// [Retain] says which snapshots a store may delete. [Named] says which ones it must keep
// because a channel names them. With a [RewoundError] a store says that it, or its channel,
// is older than what the reader has seen of it.
//
// Everything here is a pure function of values. The time is an argument.
//
// # Decisions
//
// A pause comes before everything else, an override and a pin too: a person who pauses
// wants nothing to change. Endpoints and certificates still follow the cluster.
package channel

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"sigs.k8s.io/yaml"

	"github.com/hapsnap/hapsnap/internal/yamltext"
	"github.com/hapsnap/hapsnap/snapshots"
)

// Kind is the KRM kind of a [Channel].
const Kind = "Channel"

// MaxSize is how many bytes a channel may have. Stores check it before they read and before
// they write, as they check the limits of a snapshot.
const MaxSize = 1 << 20

// ErrInvalid is returned for a channel that cannot be read. The pusher then keeps what
// runs.
var ErrInvalid = errors.New("channel is not valid")

// Channel is the small mutable object in which people say what should run. With the zero
// value the newest snapshot runs. It is a value: methods that change it return another
// channel, and share nothing that is written to.
type Channel struct {
	APIVersion string             `json:"apiVersion"`
	Kind       string             `json:"kind"`
	Metadata   snapshots.Metadata `json:"metadata"`
	Spec       Spec               `json:"spec"`
	// Act says what an edit did. Stores with a history keep it there, and not in the channel.
	Act Act `json:"-"`
}

// Spec is what people said. [Want] documents which part comes first.
type Spec struct {
	Override        *Override      `json:"override,omitempty"`
	Pin             *Pin           `json:"pin,omitempty"`
	Pause           *Pause         `json:"pause,omitempty"`
	RequireApproval bool           `json:"requireApproval,omitempty"`
	Approved        []snapshots.ID `json:"approved,omitempty"` // ascending
	Rejected        []Rejection    `json:"rejected,omitempty"` // oldest first
	// ShareRejections makes the rejections of one fleet count for all fleets on the store.
	ShareRejections bool `json:"shareRejections,omitempty"`
	// Promote and Abort are orders about the current rollout of a snapshot. They do not say
	// what should run.
	Promote *Order `json:"promote,omitempty"`
	Abort   *Order `json:"abort,omitempty"`
	// ConfirmEndpoints says that endpoints are gone which a pusher keeps although its
	// source has none of them any more.
	ConfirmEndpoints *Confirmation `json:"confirmEndpoints,omitempty"`
	// AcceptedRewind lists what a person gave up of the store, and of this channel.
	AcceptedRewind *AcceptedRewind `json:"acceptedRewind,omitempty"`
}

// Override makes a snapshot run until it expires, in place of a pin.
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

// Order is a person's order about the current rollout of a snapshot. A rollout ignores
// orders that were given before it began.
type Order struct {
	Snapshot snapshots.ID `json:"snapshot"`
	// Full makes a promotion start all remaining waves.
	Full   bool      `json:"full,omitempty"`
	By     string    `json:"by,omitempty"`
	Reason string    `json:"reason,omitempty"`
	At     time.Time `json:"at,omitzero"`
}

// Confirmation says that endpoints are gone for good. Loss is the name that the pusher gave
// to everything that it kept at that time. The confirmation covers nothing else.
type Confirmation struct {
	Loss   string    `json:"loss"`
	By     string    `json:"by,omitempty"`
	Reason string    `json:"reason,omitempty"`
	At     time.Time `json:"at,omitzero"`
}

// Pause keeps what runs.
type Pause struct {
	By     string    `json:"by,omitempty"`
	Reason string    `json:"reason,omitempty"`
	At     time.Time `json:"at,omitzero"`
}

// Rejection keeps a content from being rolled out again. Snapshot is the snapshot that had it at the time.
// Every other snapshot with the same content is rejected too.
type Rejection struct {
	Digest   snapshots.Digest `json:"digest"`
	Snapshot snapshots.ID     `json:"snapshot"`
	Reason   string           `json:"reason,omitempty"`
	At       time.Time        `json:"at,omitzero"`
	// Fleet is the only fleet that the rejection counts for, or "" for all.
	Fleet string `json:"fleet,omitempty"`
	// Failed is set by a pusher whose rollout failed. Good is what its fleet went back to,
	// zero if nothing was known to be good. After a rejection by a person the next older
	// snapshot runs; after a failure the pusher keeps what is good.
	Failed bool         `json:"failed,omitempty"`
	Good   snapshots.ID `json:"good,omitzero"`
}

// CountsFor reports whether the rejection counts for a fleet if the channel does not share
// rejections. With "" every rejection counts.
func (r Rejection) CountsFor(fleet string) bool {
	return r.Fleet == "" || fleet == "" || r.Fleet == fleet
}

// Pinned returns the channel with the pin. A pin withdraws a rejection of the same content.
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

// Overridden returns the channel with the override, which must expire. An override
// withdraws a rejection of the same content.
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

// Promoted returns the channel with the order to start the next wave of a rollout at once.
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

// WithApproval returns the channel with or without required approval. Approve what runs at
// the same time. Otherwise nothing newer than the last approved snapshot could run.
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

// Reject returns the channel with the content rejected. It replaces an earlier rejection of
// the content for the same fleet, or for all fleets. It forgets the oldest failures if they are very many.
func (c Channel) Reject(r Rejection) Channel {
	r.At = stableTime(r.At)
	c = c.withoutRejections(func(old Rejection) bool { return old.Digest == r.Digest && old.Fleet == r.Fleet })
	c.Spec.Rejected = append(c.Spec.Rejected, r)
	return c.withinRoom()
}

// roomForFailures is how many bytes failures of rollouts may take, so that a pin always fits. If there are so many that
// they would take more, the oldest first lose their reasons; then the oldest are forgotten. The last failure of each fleet
// stays: it keeps that fleet from trying the same snapshot again. What people rejected stays, and takes no room.
const roomForFailures = 256 << 10

// withinRoom returns the channel, which shares no rejections with another one, with failures that take no more room.
func (c Channel) withinRoom() Channel {
	over, last := -roomForFailures, map[string]int{}
	for i, r := range c.Spec.Rejected {
		if r.Failed {
			over += r.size()
			last[r.Fleet] = i
		}
	}
	for i := range c.Spec.Rejected[:len(c.Spec.Rejected)-1] {
		if r := &c.Spec.Rejected[i]; over > 0 && r.Failed {
			over -= r.size()
			r.Reason = ""
			over += r.size()
		}
	}
	if over <= 0 {
		return c
	}
	all := c.Spec.Rejected
	c.Spec.Rejected = nil
	for i, r := range all {
		if over > 0 && r.Failed && last[r.Fleet] != i {
			over -= r.size()
			continue
		}
		c.Spec.Rejected = append(c.Spec.Rejected, r)
	}
	return c
}

// size returns about how many bytes a rejection takes.
func (r Rejection) size() int {
	return 250 + len(r.Reason) + strings.Count(r.Reason, "\n")*4 + len(r.Fleet)
}

// Retry returns the channel without any rejection of the content, and whether there was
// one.
func (c Channel) Retry(d snapshots.Digest) (Channel, bool) { return c.RetryFor(d, "") }

// RetryFor is [Channel.Retry] for one fleet. It keeps rejections for all fleets and for
// other fleets. With "" it removes all.
func (c Channel) RetryFor(d snapshots.Digest, fleet string) (Channel, bool) {
	next := c.withoutRejections(func(r Rejection) bool { return r.Digest == d && (fleet == "" || r.Fleet == fleet) })
	return next, len(next.Spec.Rejected) < len(c.Spec.Rejected)
}

// Rejection returns the rejection of the snapshot's content, if it is rejected for any
// fleet.
func (c Channel) Rejection(id snapshots.ID) (Rejection, bool) { return c.RejectionFor(id, "") }

// RejectionFor returns the rejection of the snapshot's content that counts for a fleet. One
// for all fleets comes before one for a single fleet, since a person made it.
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

// stableTime returns the time as YAML keeps it: UTC, in seconds.
func stableTime(t time.Time) time.Time { return t.UTC().Truncate(time.Second) }

// Marshal returns the channel as YAML. The same value gives the same bytes.
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

// Parse reads a channel, which people may have edited. It refuses unknown fields, since
// they may be what the person wanted most. Errors wrap [ErrInvalid].
func Parse(data []byte) (Channel, error) {
	var c Channel
	if err := snapshots.DecodeYAML(data, MaxSize, &c); err != nil {
		return Channel{}, fmt.Errorf("%w: %w", ErrInvalid, err)
	}
	if c.APIVersion != snapshots.APIVersion || c.Kind != Kind {
		return Channel{}, fmt.Errorf("%w: it is %q %q, not %s %s", ErrInvalid, c.APIVersion, c.Kind, snapshots.APIVersion, Kind)
	}
	if err := checkWhole(data); err != nil {
		return Channel{}, err
	}
	return c, c.check()
}

// checkWhole refuses a channel whose spec, or an entry of it, has no value. A file that was cut after "spec:" or "pin:"
// looks like that, and would unpin a fleet. An empty channel is written as "spec: {}".
func checkWhole(data []byte) error {
	var said struct {
		Spec map[string]any `json:"spec"`
	}
	if err := yaml.Unmarshal(data, &said); err != nil {
		return fmt.Errorf("%w: %w", ErrInvalid, err)
	}
	if said.Spec == nil {
		return fmt.Errorf("%w: it has no spec, as if it had been cut off; write \"spec: {}\" if nothing is pinned", ErrInvalid)
	}
	for _, key := range slices.Sorted(maps.Keys(said.Spec)) {
		if said.Spec[key] == nil {
			return fmt.Errorf("%w: spec.%s has no value, as if the file had been cut off; delete its line if it should not be there", ErrInvalid, key)
		}
	}
	return nil
}

// check refuses entries that have no effect although they look as if they had.
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

// ErrRewound means that a store, or its channel, is gone or older than what the reader has
// seen of it. The pusher keeps what runs until the store is restored, or until a person
// accepts the loss: see [AcceptedRewind].
var ErrRewound = errors.New("it was rewound")

// Seen is what a reader has seen of a store, and accepted. The reader keeps it and gives it
// back to the store after a restart, since a store alone cannot tell that it went back.
type Seen struct {
	// Store is the URL. What was seen of one store says nothing about another.
	Store string `json:"store,omitempty"`
	// Head is the newest snapshot, if the order of the store cannot change unnoticed, as on a branch of git.
	Head snapshots.ID `json:"head,omitzero"`
	// Channel is the version of the channel in the store's own format, without spaces. It
	// is "" if there was no channel.
	Channel string `json:"channel,omitempty"`
}

// Of returns what was seen of the store at the URL.
func (s Seen) Of(store string) Seen {
	if s.Store != store {
		return Seen{Store: store}
	}
	return s
}

// RewoundError is an [ErrRewound] that lists what is gone.
type RewoundError struct {
	Snapshots []snapshots.ID // snapshots that were seen and are newer than the newest, ascending
	Channel   string         // the version that was seen, if the current channel does not follow it
	Message   string         // such as "it is at r000001-…, and r000002-… was on it"
}

// Error says what is gone, and what a person can do.
func (e *RewoundError) Error() string {
	return ErrRewound.Error() + ": " + e.Message + "; put that back, or give it up with pusher accept-rewind"
}

// Unwrap makes it an [ErrRewound].
func (e *RewoundError) Unwrap() error { return ErrRewound }

// AcceptedRewind lists what a person gave up of a store, and of its channel. It covers
// exactly these: it does not cover another rewind, and a channel that is restored does not
// restore it.
type AcceptedRewind struct {
	Snapshots []snapshots.ID `json:"snapshots,omitempty"` // ascending
	Channels  []string       `json:"channels,omitempty"`  // versions, sorted
	By        string         `json:"by,omitempty"`
	Reason    string         `json:"reason,omitempty"`
	At        time.Time      `json:"at,omitzero"`
}

// RewindAccepted returns the channel in which this loss is accepted, in addition to earlier ones.
func (c Channel) RewindAccepted(r AcceptedRewind) Channel {
	if old := c.Spec.AcceptedRewind; old != nil {
		r.Snapshots, r.Channels = slices.Concat(old.Snapshots, r.Snapshots), slices.Concat(old.Channels, r.Channels)
	} else {
		r.Snapshots, r.Channels = slices.Clone(r.Snapshots), slices.Clone(r.Channels)
	}
	slices.SortFunc(r.Snapshots, snapshots.ID.Compare)
	slices.Sort(r.Channels)
	r.Snapshots, r.Channels = slices.Compact(r.Snapshots), slices.Compact(r.Channels)
	r.At = stableTime(r.At)
	c.Spec.AcceptedRewind = &r
	return c
}

// AcceptsRewind reports whether all of this loss is accepted.
func (c Channel) AcceptsRewind(e *RewoundError) bool {
	r := c.Spec.AcceptedRewind
	if r == nil {
		r = &AcceptedRewind{}
	}
	for _, id := range e.Snapshots {
		if !slices.Contains(r.Snapshots, id) {
			return false
		}
	}
	return e.Channel == "" || slices.Contains(r.Channels, e.Channel)
}

// check refuses names that could not be written as words in a line.
func (r AcceptedRewind) check() error {
	for _, version := range r.Channels {
		if version == "" || strings.ContainsFunc(version, func(c rune) bool { return c <= ' ' || c == ',' }) {
			return fmt.Errorf("%w: spec.acceptedRewind has the version %q", ErrInvalid, version)
		}
	}
	return nil
}
