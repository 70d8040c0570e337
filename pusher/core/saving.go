package core

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/hapsnap/hapsnap/pusher/binding"
	"github.com/hapsnap/hapsnap/pusher/instance"
	"github.com/hapsnap/hapsnap/pusher/observe"
	"github.com/hapsnap/hapsnap/pusher/report"
	"github.com/hapsnap/hapsnap/pusher/rollout"
	"github.com/hapsnap/hapsnap/snapshots"
	"github.com/hapsnap/hapsnap/snapshots/bind"
	"github.com/hapsnap/hapsnap/snapshots/channel"
)

// The machine saves its state before it begins anything that its successor must know about. Nothing
// else waits for the save:
//
//   - A step of the rollout is proposed: its state is saved, and only then do its pushes begin. Until
//     then there is no other step. If the save fails, the next step starts again from what is known
//     by then.
//   - Changes of endpoints and certificates at run time, probes, claims and inspections do not
//     wait. A successor can ask the instances for everything that the state would say about those.
//
// Once the state is saved, the pushes of the step are approved. A later turn begins an approved push
// only if the channel still asks for the same, and the instance can be pushed to. Otherwise the next
// step learns that the push was not begun.

// saving requests saves of the state, and higher terms. One operation is under way at a time. The
// step whose state is being saved is in the world.
type saving struct {
	*world
	reporting *reporting
	underWay  bool
	began     time.Time // when the operation under way began
	saved     time.Time // when the last save ended
	retry     retrying
	approved  []approval // pushes of saved steps, not begun yet
	raise     *RaiseTerm // is requested, and begins when nothing is under way
	raising   *RaiseTerm // is under way
	unsaved   int        // how many groups of slots are left out, because the state was too large
	slots     slotsEncoded
}

// slotsEncoded are the slots as a saved state has them, which are most of it. Few saves are made because slots changed.
type slotsEncoded struct {
	edition, unsaved int // of the slots, and how many groups are left out
	json             []byte
}

// proposal is a step of the rollout whose state is not saved yet.
type proposal struct {
	next     rollout.State
	waits    []rollout.Wait
	pushes   []approval
	results  int // how many of the world's results the step has taken
	reloads  map[string]int
	proposed time.Time
}

// approval is a push of a step, with the instance and the decision that the step was based on.
type approval struct {
	rollout.Push
	on       instance.Ref
	decision decision
}

// holds reports whether the decision is still the one that the step was based on, and the snapshot
// is not rejected. The push is still valid if there is a newer snapshot: the next step decides how
// the rollout gives way to it. Otherwise no push would ever begin if many snapshots are published
// while a slow store saves.
func (a approval) holds(now decision, view channel.View) bool {
	was := a.decision
	if was.Intent != now.Intent || was.Hold != now.Hold || a.Purpose == rollout.Wave && slices.Contains(rejected(view), a.Snapshot.Short) {
		return false
	}
	return was.ID == now.ID || was.Because == channel.BecauseNewest && now.ID.Revision > was.ID.Revision
}

// reserved is how long an instance is kept free for a push whose step is being saved. If the save
// takes longer, other work begins, and the push begins after it.
const reserved = 250 * time.Millisecond

// reservedFor reports whether an instance is kept free for a push.
func (s *saving) reservedFor(i *instanceState, now time.Time) bool {
	for _, a := range s.approved {
		if a.on == i.ref() {
			return true
		}
	}
	if s.proposed == nil || now.Sub(s.proposed.proposed) > reserved {
		return false
	}
	for _, a := range s.proposed.pushes {
		if a.on == i.ref() {
			return true
		}
	}
	return false
}

// mayPropose reports whether the state can be saved now.
func (s *saving) mayPropose(now time.Time) bool {
	return !s.underWay && s.raise == nil && !now.Before(s.retry.at)
}

// propose begins to save the state of a step.
func (s *saving) propose(next rollout.State, pushes []rollout.Push, waits []rollout.Wait, now time.Time) {
	p := &proposal{next: next, waits: waits, results: len(s.results), reloads: s.reloads, proposed: now}
	s.reloads = map[string]int{}
	view := s.view
	view.Runs = runs(next)
	after := decide(view, next.Failed, now) // the decision after this step, if nothing else changes
	for _, push := range pushes {
		p.pushes = append(p.pushes, approval{push, s.instances[push.Instance].ref(), after})
	}
	s.proposed = p
	s.beginSave(now)
}

// settle adopts a proposal whose state was saved, or drops one whose save failed.
func (s *saving) settle(p *proposal, err error, now time.Time) {
	s.proposed = nil
	if err != nil {
		for name, pid := range p.reloads {
			if _, later := s.reloads[name]; !later {
				s.reloads[name] = pid
			}
		}
		return
	}
	old := s.state.Rollout
	s.state.Rollout, s.waits = p.next, p.waits
	s.results = s.results[p.results:]
	for _, event := range observe.RolloutEvents(old, p.next) {
		if event.Instance == "" || s.instances[event.Instance] != nil { // the instance has not left
			s.record(event, now)
		}
	}
	s.approved = append(s.approved, p.pushes...)
}

// encoded returns the state to save, with the proposed step.
func (s *saving) encoded(now time.Time) ([]byte, error) {
	if p := s.proposed; p != nil {
		current, waits := s.state.Rollout, s.waits
		s.state.Rollout, s.waits = p.next, p.waits
		defer func() { s.state.Rollout, s.waits = current, waits }()
	}
	if e := s.slots; e.json == nil || e.edition != s.bindings.Edition() || e.unsaved != s.unsaved {
		slots, _ := s.bindings.Table()
		s.state.Slots = s.slotsThatFit(slots)
		data, err := encodedPart(s.state.Slots)
		if err != nil {
			return nil, err
		}
		s.slots = slotsEncoded{s.bindings.Edition(), s.unsaved, data}
	}
	s.state.Kept = s.live.Saved()
	s.state.Status = s.reporting.status(now)
	if s.state.Instances == nil || s.fleetKnown() {
		s.state.Instances = make(map[string]savedInstance, len(s.instances))
	}
	for i := range s.served() {
		s.state.Instances[i.Name] = remembered(i)
	}
	return s.state.encoded(s.slots.json)
}

// ErrStateTooLarge is the error of a state that its store cannot take.
var ErrStateTooLarge = errors.New("the state does not fit into its store")

// slotsThatFit returns the slots without the largest groups. It leaves out as many groups as had to
// go for the state to fit. So no rollout and no pin waits until somebody has fewer endpoints. After
// a restart, the servers of the groups that were left out get new slots.
func (s *saving) slotsThatFit(slots bind.Slots) bind.Slots {
	if s.unsaved == 0 {
		return slots
	}
	keys := slices.SortedFunc(maps.Keys(slots), func(a, b bind.SlotKey) int {
		return cmp.Or(cmp.Compare(len(slots[b]), len(slots[a])), cmp.Compare(a.String(), b.String()))
	})
	out := maps.Clone(slots)
	for _, key := range keys[:min(s.unsaved, len(keys))] {
		delete(out, key)
	}
	return out
}

// leaveSlotsOut makes the next save leave out more slots. It returns false if there are none left.
func (s *saving) leaveSlotsOut() bool {
	slots, _ := s.bindings.Table()
	if s.unsaved >= len(slots) {
		return false
	}
	s.unsaved = max(1, 2*s.unsaved)
	return true
}

// beginSave begins to save the state.
func (s *saving) beginSave(now time.Time) {
	data, err := s.encoded(now)
	s.dirty = false
	s.underWay, s.began = true, now
	s.begin(SaveState{data, err})
}

// lastSave is [Machine.LastSave]. It drops a step that is only proposed: none of its pushes has
// begun.
func (s *saving) lastSave(now time.Time) SaveState {
	s.proposed = nil
	data, err := s.encoded(now)
	return SaveState{data, err}
}

// keepState begins to save the state if that is due, or to raise the term if that is requested.
func (s *saving) keepState(now time.Time) {
	beat, soonest := s.saveIntervals()
	switch age := now.Sub(s.saved); {
	case s.underWay && now.Sub(s.began) > SaveTimeout+time.Second: // the timeout did not end the save
		s.trouble(report.AboutState, ErrStateHangs, now)
	case s.underWay:
	case s.raise != nil:
		s.underWay, s.began = true, now
		s.begin(*s.raise)
		s.raise, s.raising = nil, s.raise
	case !now.Before(s.retry.at) && (age >= beat || age >= soonest && (s.dirty || !s.reporting.reported.SameAs(s.state.Status))):
		s.beginSave(now)
	}
}

// saveIntervals returns how often the state is saved without a change, and the shortest time
// between two saves if it changes.
func (s *saving) saveIntervals() (beat, soonest time.Duration) {
	if s.StateElsewhere {
		return heartbeatElsewhere, saveIntervalElsewhere
	}
	return heartbeat, saveInterval
}

// ErrStateHangs is the error of a state store that does not answer.
var ErrStateHangs = errors.New("the store of the state does not answer: rollouts wait for it, endpoints and certificates are followed")

// saveEnded takes the result of a save. It adopts or drops the step whose state was saved.
func (s *saving) saveEnded(v SaveEnded, now time.Time) {
	s.underWay = false
	s.saved, s.retry = now, s.retry.after(v.Err, now)
	if errors.Is(v.Err, ErrStateTooLarge) && s.leaveSlotsOut() {
		s.retry = retrying{}
	}
	var unsaved error
	if s.unsaved > 0 {
		unsaved = fmt.Errorf("%w: the slots of the %d Service ports with the most servers are not saved, and are assigned anew after a restart", ErrStateTooLarge, s.unsaved)
	}
	s.trouble(report.AboutStateSize, unsaved, now)
	s.dirty = s.dirty || v.Err != nil
	if v.Taken {
		s.begin(EndTerm{v.Err})
	}
	s.trouble(report.AboutState, v.Err, now)
	if p := s.proposed; p != nil {
		s.settle(p, v.Err, now)
	}
}

// retrying says when to try again after a failure. Each failure in a row doubles the wait.
type retrying struct {
	at   time.Time // the zero time means at once
	wait time.Duration
}

// The first and the longest wait after a failed save, such as on a full disk.
const (
	firstSaveRetry = saveInterval
	lastSaveRetry  = 10 * time.Second
)

// after returns the next retry. The error is that of the try that just ended, nil if it succeeded.
func (r retrying) after(err error, now time.Time) retrying {
	if err == nil {
		return retrying{}
	}
	r.wait = min(max(2*r.wait, firstSaveRetry), lastSaveRetry)
	return retrying{at: now.Add(r.wait), wait: r.wait}
}

// stateKind is the kind of the state file.
const stateKind = "PusherState"

// State is what a pusher remembers over restarts.
type State struct {
	APIVersion string `json:"apiVersion"`
	Kind       string `json:"kind"`
	// ID tells this state from any other. It is random. The pusher writes it to each instance that
	// it leads.
	ID      string        `json:"id,omitempty"`
	Status  report.Status `json:"status"`
	Rollout rollout.State `json:"rollout"`
	Slots   bind.Slots    `json:"slots,omitempty"`
	// Seen is what this pusher has seen of the store and accepted.
	Seen channel.Seen `json:"seen,omitzero"`
	// Override is the override in force. It stays here until the pusher has reported its end.
	Override *channel.Override `json:"override,omitempty"`
	// Kept are the Service ports that keep their endpoints in slots although the source lists none.
	Kept *binding.KeptEndpoints `json:"kept,omitempty"`
	// Uploads lists the files that were uploaded to each instance. Of the certificates it has only
	// those that some snapshot in use does not need. They are saved in the field Certificates,
	// since older pushers do not expect certificates among Uploads, and would remove them while
	// they are in use. Uploads are a field of their own because those of an instance that left are
	// kept for a day, while its entry in Instances is removed at once.
	Uploads      map[string][]Upload `json:"uploads,omitempty"`
	Certificates map[string][]Upload `json:"certificates,omitempty"`
	// Instances holds everything else that is kept about instances, by name.
	Instances map[string]savedInstance `json:"instances,omitempty"`
}

// ErrNotState is the error for data that should be a state, but cannot be read as one. The pusher
// then never starts with a new state, since it would forget what failed and what is under way.
var ErrNotState = errors.New("it is no state that this pusher can read")

// ParseState reads a state. The place says where the data was kept, for errors. Without data it
// returns a new state. It ignores unknown fields, and the next save drops them, so that an older
// version can replace a pusher. A state that older versions must not read has another apiVersion.
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

// checkState returns an error for data that is not a state.
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

// ParseStatus returns the status in a saved state. The place says where the data was kept, for
// errors.
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

// Encoded returns the state as JSON.
func (s State) Encoded() ([]byte, error) {
	slots, err := encodedPart(s.Slots)
	if err != nil {
		return nil, err
	}
	return s.encoded(slots)
}

// encodedPart returns a part of a state, or all of it, as JSON.
func encodedPart(part any) ([]byte, error) {
	data, err := json.Marshal(part)
	if err != nil {
		return nil, fmt.Errorf("save state: %w", err)
	}
	return data, nil
}

// encoded returns the state as JSON, with its slots, which are JSON already. They are put in as they are: encoding/json would
// read all of them once more.
func (s State) encoded(slots []byte) ([]byte, error) {
	s.APIVersion, s.Kind = snapshots.APIVersion, stateKind
	s.Uploads, s.Certificates = splitUploads(s.Uploads)
	empty := len(s.Slots) == 0
	s.Slots = nil
	data, err := encodedPart(s)
	if err != nil {
		return nil, err
	}
	if !empty {
		data = slices.Concat([]byte(`{"slots":`), slots, []byte(","), data[1:])
	}
	return append(data, '\n'), nil
}

// InUse returns the snapshots that a pusher with this state may need from its store, and the
// purpose of each. A push that has begun counts, since the instance may already run its snapshot.
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
