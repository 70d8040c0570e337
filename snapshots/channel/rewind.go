package channel

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/hapsnap/hapsnap/snapshots"
)

// ErrRewound means that a store, or its channel, is behind what was seen of it, or gone.
// What runs is held until it is back, or until a person accepts it: see [AcceptedRewind].
var ErrRewound = errors.New("it was rewound")

// Seen is what a reader has seen of a store, and believed. It is kept by the reader, and
// given back to the store after a restart: a store alone cannot tell that it went back.
type Seen struct {
	// Store is the URL: what was seen of one store says nothing of another.
	Store string `json:"store,omitempty"`
	// Head is the newest snapshot, where the store has an order that nobody can change
	// unseen, as a branch of git has.
	Head snapshots.ID `json:"head,omitzero"`
	// Channel is the version of the channel, in the store's own words, and without
	// spaces; "" if there was none.
	Channel string `json:"channel,omitempty"`
}

// Of returns what was seen of the store at the URL.
func (s Seen) Of(store string) Seen {
	if s.Store != store {
		return Seen{Store: store}
	}
	return s
}

// RewoundError is an [ErrRewound] that says what is gone.
type RewoundError struct {
	Snapshots []snapshots.ID // that were seen and are newer than the newest, ascending
	Channel   string         // the version that was seen, if the channel is none that came after it
	Message   string         // such as "it is at r000001-…, and r000002-… was on it"
}

// Error says what is gone, and what a person can do.
func (e *RewoundError) Error() string {
	return ErrRewound.Error() + ": " + e.Message + "; put that back, or give it up with pusher accept-rewind"
}

// Unwrap makes it an [ErrRewound].
func (e *RewoundError) Unwrap() error { return ErrRewound }

// AcceptedRewind is what a person gave up of a store, and of its channel. It names that
// exactly: whoever sets the store back once more is not covered by it, and who brings an
// old channel back does not bring it along.
type AcceptedRewind struct {
	Snapshots []snapshots.ID `json:"snapshots,omitempty"` // ascending
	Channels  []string       `json:"channels,omitempty"`  // versions, sorted
	By        string         `json:"by,omitempty"`
	Reason    string         `json:"reason,omitempty"`
	At        time.Time      `json:"at,omitzero"`
}

// RewindAccepted returns the channel in which it is accepted that this is gone, besides
// what was accepted before.
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

// AcceptsRewind reports whether it is accepted that all of this is gone.
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

// check refuses what could not be written as words in a line.
func (r AcceptedRewind) check() error {
	for _, version := range r.Channels {
		if version == "" || strings.ContainsFunc(version, func(c rune) bool { return c <= ' ' || c == ',' }) {
			return fmt.Errorf("%w: spec.acceptedRewind has the version %q", ErrInvalid, version)
		}
	}
	return nil
}
