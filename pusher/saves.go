package pusher

import (
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/hapsnap/hapsnap/pusher/instance"
	"github.com/hapsnap/hapsnap/pusher/observe"
	"github.com/hapsnap/hapsnap/pusher/rollout"
	"github.com/hapsnap/hapsnap/pusher/statestore"
	"github.com/hapsnap/hapsnap/snapshots/channel"
)

// The state is persisted before anything is done that a successor must know of, and nothing
// else waits for that:
//
//   - A step of the rollout is proposed: its state is saved, and only when it is there do its
//     pushes begin. Until then there is no other step. If the save fails, the step is taken
//     anew from what is known by then.
//   - Changes of endpoints and certificates at run time, probes, claims and inspections do
//     not wait: what the state says of them is found again on the instances.
//
// A push that was approved so is begun in a turn in which the world is still the one that the
// step saw: the channel asks for the same, and the instance can be pushed to. Otherwise the
// step after it is told that the push was not begun.

// saves is what the engine knows of saving its state. One operation is under way at a time.
type saves struct {
	underWay bool
	began    time.Time // of what is under way
	saved    time.Time // when the last save ended
	retry    retrying
	proposed *proposal // its state is being saved
	approved []approval
	raise    *RaiseTerm // waits until nothing is under way
}

// proposal is a step of the rollout whose state is not saved yet.
type proposal struct {
	next     rollout.State
	waits    []rollout.Wait
	pushes   []approval
	results  int // how many of the engine's results it has taken
	reloads  map[string]int
	proposed time.Time
}

// approval is a push of a step, with what the step saw.
type approval struct {
	rollout.Push
	on       instance.Ref
	decision decision
}

// reserved is how long an instance is kept free for a push of a proposal. With a state store
// that takes longer, other work goes on, and the push follows it.
const reserved = 250 * time.Millisecond

// mayPropose reports whether the state can be saved now.
func (e *engine) mayPropose(now time.Time) bool {
	return !e.saves.underWay && e.saves.raise == nil && !now.Before(e.saves.retry.at)
}

// takeStep takes the next step of the rollout. One that changes its state is proposed.
func (e *engine) takeStep(now time.Time) {
	if e.saves.proposed != nil {
		return
	}
	next, pushes, waits := e.policy.Step(e.state.Rollout, e.observe(now), now)
	waits = e.waitForNeeds(waits)
	switch {
	case sameJSON(next, e.state.Rollout):
		e.waits = waits
		e.results, e.reloads = nil, map[string]int{}
	case e.mayPropose(now):
		e.propose(next, pushes, waits, now)
	}
}

// propose begins to save a step.
func (e *engine) propose(next rollout.State, pushes []rollout.Push, waits []rollout.Wait, now time.Time) {
	e.noteUploads(pushes)
	p := &proposal{next: next, waits: waits, results: len(e.results), reloads: e.reloads, proposed: now}
	e.reloads = map[string]int{}
	view := e.view
	view.Runs = runs(next)
	after := decide(view, next.Failed, now) // what is decided once this step is taken, if nothing else changes
	for _, push := range pushes {
		p.pushes = append(p.pushes, approval{push, e.instances[push.Instance].ref(), after})
	}
	e.saves.proposed = p
	e.beginSave(now)
}

// settle takes a proposal whose state was saved, or drops it.
func (e *engine) settle(p *proposal, err error, now time.Time) {
	e.saves.proposed = nil
	if err != nil {
		for name, pid := range p.reloads {
			if _, later := e.reloads[name]; !later {
				e.reloads[name] = pid
			}
		}
		return
	}
	old := e.state.Rollout
	e.state.Rollout, e.waits = p.next, p.waits
	e.results = e.results[p.results:]
	for _, event := range observe.RolloutEvents(old, p.next) {
		if event.Instance == "" || e.instances[event.Instance] != nil { // of one that left there is nothing to say
			e.tell(event, now)
		}
	}
	e.saves.approved = append(e.saves.approved, p.pushes...)
}

// beginApproved begins the pushes whose state is saved. One waits for a job that is under way
// on its instance; one that no longer fits is not begun.
func (e *engine) beginApproved(may bool, now time.Time) {
	var waiting []approval
	for _, a := range e.saves.approved {
		switch i := e.instances[a.Instance]; {
		case !may || i == nil || i.ref() != a.on || !i.reachable() || i.ledByOther() || e.unclaimed(i) || !a.holds(e.decision, e.view):
			e.tell(observe.Info("push not begun, what it was decided on has changed", "instance", a.Instance, "snapshot", a.Snapshot, "why", string(a.Purpose)), now)
			e.results = append(e.results, rollout.Result{Instance: a.Instance, Snapshot: a.Snapshot, Outcome: rollout.NotBegun})
		case i.busy != "":
			waiting = append(waiting, a)
		default:
			e.beginPush(a.Push, now)
		}
	}
	e.saves.approved = waiting
}

// holds reports whether what should run is still what the step went by, and is not rejected. A
// newer snapshot does not count: how a rollout gives way to it is for the next step to say, and
// where many are published while a slow store saves, no push would ever begin.
func (a approval) holds(now decision, view channel.View) bool {
	was := a.decision
	if was.Intent != now.Intent || was.Hold != now.Hold || a.Purpose == rollout.Wave && slices.Contains(rejected(view), a.Snapshot.Short) {
		return false
	}
	return was.ID == now.ID || was.Because == channel.BecauseNewest && now.ID.Revision > was.ID.Revision
}

// reservedFor reports whether an instance is kept free for a push.
func (s *saves) reservedFor(i *instanceState, now time.Time) bool {
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

// rollouts returns the state of the rollout, and the one that is being saved.
func (e *engine) rollouts() []rollout.State {
	if p := e.saves.proposed; p != nil {
		return []rollout.State{e.state.Rollout, p.next}
	}
	return []rollout.State{e.state.Rollout}
}

// change changes the state of the rollout outside of a step, also the one that is being saved.
func (e *engine) change(how func(rollout.State) rollout.State) {
	e.state.Rollout = how(e.state.Rollout)
	if p := e.saves.proposed; p != nil {
		p.next = how(p.next)
	}
}

// encoded returns the state as it is to be saved, with the step that is proposed.
func (e *engine) encoded(now time.Time) ([]byte, error) {
	if p := e.saves.proposed; p != nil {
		current, waits := e.state.Rollout, e.waits
		e.state.Rollout, e.waits = p.next, p.waits
		defer func() { e.state.Rollout, e.waits = current, waits }()
	}
	e.state.Slots, _ = e.bindings.Table()
	e.state.Kept = e.live.Saved()
	e.state.Status = e.status(now)
	if e.state.Instances == nil || e.known() {
		e.state.Instances = make(map[string]kept, len(e.instances))
	}
	for name, i := range e.instances {
		i.ByHand, i.Alias, i.Record = i.running.ManualDrains, i.override(), i.known.Record.Remembered
		e.state.Instances[name] = i.kept
	}
	return e.state.encoded()
}

// beginSave begins to save the state.
func (e *engine) beginSave(now time.Time) {
	data, err := e.encoded(now)
	e.dirty = false
	e.saves.underWay, e.saves.began = true, now
	e.begin(SaveState{data, err})
}

// lastSave returns the effect that saves what is known in the end, when nothing else is under way.
// A step that was proposed is dropped: none of it was begun.
func (e *engine) lastSave(now time.Time) SaveState {
	e.saves.proposed = nil
	data, err := e.encoded(now)
	return SaveState{data, err}
}

// keepState saves the state when that is due, and raises the term.
func (e *engine) keepState(now time.Time) {
	s := &e.saves
	switch age := now.Sub(s.saved); {
	case s.underWay && now.Sub(s.began) > saveTimeout+time.Second: // not even the timeout ended it
		e.trouble("state", errStateHangs, now)
	case s.underWay:
	case s.raise != nil:
		s.underWay, s.began = true, now
		e.begin(*s.raise)
		s.raise = nil
	case !now.Before(s.retry.at) && (age >= heartbeat || age >= e.saveInterval() && (e.dirty || !e.reported.SameAs(e.state.Status))):
		e.beginSave(now)
	}
}

// errStateHangs is for a state store that answers nothing at all.
var errStateHangs = errors.New("the store of the state does not answer: rollouts wait for it, endpoints and certificates are followed")

func (e *engine) saveInterval() time.Duration {
	if e.Keeper != nil {
		return saveIntervalElsewhere
	}
	return saveInterval
}

func (s SaveEnded) apply(e *engine, now time.Time) {
	e.saves.underWay = false
	e.saves.saved, e.saves.retry = now, e.saves.retry.after(s.Err, now)
	e.dirty = e.dirty || s.Err != nil
	if errors.Is(s.Err, statestore.ErrTaken) {
		e.begin(EndTerm{s.Err})
	}
	e.trouble("state", s.Err, now)
	if p := e.saves.proposed; p != nil {
		e.settle(p, s.Err, now)
	}
}

func (r Raised) apply(e *engine, now time.Time) {
	e.saves.underWay = false
	if r.Err != nil {
		e.trouble("state", r.Err, now)
		if errors.Is(r.Err, statestore.ErrTaken) {
			e.begin(EndTerm{fmt.Errorf("instance %s is of term %d: %w", r.Of.Name, r.Above, r.Err)})
		}
		return
	}
	e.tell(observe.Warn("term raised above one that was met", "instance", r.Of.Name, "met", r.Above, "term", r.Term), now)
	e.leadership.raised++
	e.leadership.term = r.Term
	e.instanceOf(r.Of).claimAfter = now
	e.dirty = true
}

// retrying is when to try again what failed. Each failure in a row doubles the wait.
type retrying struct {
	at   time.Time // zero: at once
	wait time.Duration
}

// The waits after a state that could not be saved, as on a disk that is full.
const (
	firstSaveRetry = saveInterval
	lastSaveRetry  = 10 * time.Second
)

// after returns what follows from the end of a try.
func (r retrying) after(err error, now time.Time) retrying {
	if err == nil {
		return retrying{}
	}
	r.wait = min(max(2*r.wait, firstSaveRetry), lastSaveRetry)
	return retrying{at: now.Add(r.wait), wait: r.wait}
}
