package core

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/hapsnap/hapsnap/pusher/binding"
	"github.com/hapsnap/hapsnap/pusher/report"
	"github.com/hapsnap/hapsnap/pusher/rollout"
	"github.com/hapsnap/hapsnap/snapshots"
	"github.com/hapsnap/hapsnap/snapshots/bind"
	"github.com/hapsnap/hapsnap/snapshots/channel"
)

// stateKind is the kind of the state file.
const stateKind = "PusherState"

// State is what the pusher keeps over restarts.
type State struct {
	APIVersion string `json:"apiVersion"`
	Kind       string `json:"kind"`
	// ID tells this state from any other. It is random, and stands on each instance that
	// the pusher with this state leads.
	ID      string        `json:"id,omitempty"`
	Status  report.Status `json:"status"`
	Rollout rollout.State `json:"rollout"`
	Slots   bind.Slots    `json:"slots,omitempty"`
	// Seen is what was seen of the store, and believed.
	Seen channel.Seen `json:"seen,omitzero"`
	// Override is the one that is in force, until its end was told.
	Override *channel.Override `json:"override,omitempty"`
	// Kept are the Service ports whose endpoints are kept in the slots, though the source
	// has none of them.
	Kept *binding.KeptEndpoints `json:"kept,omitempty"`
	// Uploads lists what was uploaded to each instance; of certificates only those that
	// some snapshot in use does not need. They are saved as Certificates: older pushers take
	// none of their own uploads for a certificate, and would remove it while it is in use.
	// They are no part of Instances: those of an instance that is not in the fleet are
	// remembered for a day, and it is forgotten at once.
	Uploads      map[string][]Upload `json:"uploads,omitempty"`
	Certificates map[string][]Upload `json:"certificates,omitempty"`
	// Instances holds what else is remembered of each.
	Instances map[string]kept `json:"instances,omitempty"`
}

// ErrNotState is returned for what lies where a state should, and is none that can be read.
// It is never taken for a new one: that would forget what failed and what is under way.
var ErrNotState = errors.New("it is no state that this pusher can read")

// ParseState reads what was kept in a place; nil is a new state. Fields that are not known
// are passed over, and are gone with the next save: a pusher can be set back to an older
// one. What that must not read has another version.
func ParseState(data []byte, place string) (State, error) {
	if data == nil {
		return State{APIVersion: snapshots.APIVersion, Kind: stateKind, Uploads: map[string][]Upload{}}, nil
	}
	if err := checkState(data, place); err != nil {
		return State{}, err
	}
	var s State
	if err := json.Unmarshal(data, &s); err != nil {
		return State{}, fmt.Errorf("read state %s: %w: %w", place, ErrNotState, err)
	}
	if err := s.Kept.Check(); err != nil {
		return State{}, fmt.Errorf("read state %s: %w", place, err)
	}
	if s.Uploads == nil {
		s.Uploads = map[string][]Upload{}
	}
	for name, list := range s.Certificates {
		s.Uploads[name] = append(s.Uploads[name], list...)
	}
	s.Certificates = nil
	return s, nil
}

// checkState returns an error for what is no state.
func checkState(data []byte, place string) error {
	var head struct{ APIVersion, Kind string }
	switch err := json.Unmarshal(data, &head); {
	case len(bytes.TrimSpace(data)) == 0:
		return fmt.Errorf("read state %s: %w: it is empty", place, ErrNotState)
	case err != nil:
		return fmt.Errorf("read state %s: %w: %w", place, ErrNotState, err)
	case head.APIVersion == "" || head.Kind == "":
		return fmt.Errorf("read state %s: %w: it does not say apiVersion: %s and kind: %s", place, ErrNotState, snapshots.APIVersion, stateKind)
	case head.Kind != stateKind:
		return fmt.Errorf("read state %s: %w: it is a %.50q, not a %s", place, ErrNotState, head.Kind, stateKind)
	case head.APIVersion != snapshots.APIVersion:
		return fmt.Errorf("read state %s: %w: its version is %.50q, not %s", place, ErrNotState, head.APIVersion, snapshots.APIVersion)
	}
	return nil
}

// ParseStatus returns the status in a state that was read from a place.
func ParseStatus(data []byte, place string) (report.Status, error) {
	if err := checkState(data, place); err != nil {
		return report.Status{}, err
	}
	var s struct{ Status report.Status }
	if err := json.Unmarshal(data, &s); err != nil {
		return report.Status{}, fmt.Errorf("read state %s: %w: %w", place, ErrNotState, err)
	}
	return s.Status, nil
}

// Encoded returns the state as it is kept.
func (s State) Encoded() ([]byte, error) {
	s.APIVersion, s.Kind = snapshots.APIVersion, stateKind
	s.Uploads, s.Certificates = splitUploads(s.Uploads)
	data, err := json.Marshal(s)
	if err != nil {
		return nil, fmt.Errorf("save state: %w", err)
	}
	return append(data, '\n'), nil
}

// InUse returns the snapshots that a pusher with this state may need of its store, and what for. An instance that a rollout or a push was begun on may
// run that snapshot by now, whatever is known of it.
func (s State) InUse() map[snapshots.ID]string {
	reasons := map[snapshots.ID][]string{}
	add := func(id snapshots.ID, reason string, args ...any) {
		reason = fmt.Sprintf(reason, args...)
		if !id.IsZero() && !slices.Contains(reasons[id], reason) {
			reasons[id] = append(reasons[id], reason)
		}
	}
	add(s.Rollout.Good, "last good")
	add(s.Status.Channel.Wanted, "wanted")
	for _, i := range s.Status.Instances {
		add(i.Running, "running on %s", i.Name)
	}
	if r := s.Rollout.Rollout; r != nil {
		add(r.Target, "target of the rollout")
		for _, t := range r.Touched {
			add(t.Snapshot, "pushed to %s", t.Instance)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(s.Rollout.Instances)) {
		if p := s.Rollout.Instances[name].Push; p != nil {
			add(p.Snapshot, "pushed to %s", name)
		}
	}
	out := map[snapshots.ID]string{}
	for id, list := range reasons {
		out[id] = strings.Join(list, ", ")
	}
	return out
}
