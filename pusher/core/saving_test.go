package core

import (
	"bytes"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.opentelemetry.io/otel/trace/noop"

	"github.com/hapsnap/hapsnap/pusher/binding"
	"github.com/hapsnap/hapsnap/pusher/fleet"
	"github.com/hapsnap/hapsnap/pusher/instance"
	"github.com/hapsnap/hapsnap/pusher/notify"
	"github.com/hapsnap/hapsnap/pusher/observe"
	"github.com/hapsnap/hapsnap/pusher/push"
	"github.com/hapsnap/hapsnap/pusher/report"
	"github.com/hapsnap/hapsnap/pusher/rollout"
	"github.com/hapsnap/hapsnap/snapshots"
	"github.com/hapsnap/hapsnap/snapshots/bind"
	"github.com/hapsnap/hapsnap/snapshots/channel"
	"github.com/hapsnap/hapsnap/snapshots/dirstore"
)

// endSave ends a save in progress, and returns what was to be saved. It returns false if no save is in
// progress.
func (m *Machine) endSave(err error, now time.Time) ([]byte, bool) {
	effects := m.effects
	m.effects = nil
	for _, x := range effects {
		if s, is := x.(SaveState); is {
			SaveEnded{Err: err}.apply(m, now)
			return s.Data, true
		}
	}
	return nil, false
}

// commit saves a step without beginning its pushes. It returns what was saved, and whether that succeeded.
func (m *Machine) commit(next rollout.State, waits []rollout.Wait, now time.Time) ([]byte, bool) {
	if sameJSON(next, m.state.Rollout) {
		m.waits, m.results, m.reloads = waits, nil, map[string]int{}
		return nil, true
	}
	if !m.saving.mayPropose(now) {
		return nil, false
	}
	m.saving.propose(next, nil, waits, now)
	return m.endSave(nil, now)
}

// The state that is saved at the end of a rollout no longer says what the last step waited for. Readers of the
// file would otherwise see that until the next save.
func TestSavedWithWhatItWaitsFor(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 11, 22, 3, 0, 0, 0, time.UTC)
	m := newMachine(State{}, now)
	good := func(revision uint64) rollout.State {
		return rollout.State{Good: snapshots.ID{Revision: revision, Short: "0123456789"}}
	}
	if _, done := m.commit(good(1), []rollout.Wait{{For: "its push", Instance: "edge-1"}}, now); !done {
		t.Fatal("not saved")
	}
	saved, done := m.commit(good(2), nil, now)
	if s, err := ParseStatus(saved, "the test"); !done || err != nil || s.Good.Revision != 2 || len(s.Waits) != 0 {
		t.Errorf("saved is %+v, %v", s, err)
	}
}

// proposing returns a machine with one instance. It has proposed a push to it.
func proposing(t *testing.T) (*Machine, *instanceState, rollout.Push) {
	t.Helper()
	e := newMachine(State{}, noon)
	i := &instanceState{Instance: fleet.Instance{Name: "a"}, asked: true}
	e.instances["a"] = i
	e.viewRead = true
	push := rollout.Push{Instance: "a", Snapshot: snapshots.ID{Revision: 2, Short: "bbbbbbbbbb"}, Purpose: rollout.Wave}
	e.view.IDs, i.matters = []snapshots.ID{push.Snapshot}, []snapshots.ID{push.Snapshot}
	e.view.Runs = push.Snapshot
	next := rollout.State{Instances: map[string]rollout.Instance{"a": {Push: &push}}, Rollout: &rollout.Rollout{Target: push.Snapshot, Phase: rollout.Pushing}}
	e.saving.propose(next, []rollout.Push{push}, nil, noon)
	e.decision = decide(e.view, nil, noon)
	return e, i, push
}

// begun returns the pushes of a machine that were begun, and the results of the others.
func (m *Machine) begun() (begun []string, results []rollout.Result) {
	for _, x := range m.effects {
		if on, is := x.(OnInstance); is {
			if p, is := on.Effect.(instance.Push); is {
				begun = append(begun, p.Name)
			}
		}
	}
	return begun, m.results
}

// A push of a saved step begins only if nothing that the step relied on has changed.
func TestApprovedPushes(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		meanwhile func(e *Machine, i *instanceState)
		err       error // of the save
		begun     bool
		notBegun  bool // the push does not begin, and the rollout learns that
	}{
		"nothing changed":         {begun: true},
		"not saved":               {err: errors.New("disk full")},
		"taken by another pusher": {err: errTaken},
		"pinned": {notBegun: true, meanwhile: func(e *Machine, _ *instanceState) {
			e.decision.Intent = "pin"
		}},
		"a newer one is published": {begun: true, meanwhile: func(e *Machine, _ *instanceState) {
			e.view.IDs = append(e.view.IDs, snapshots.ID{Revision: 3, Short: "cccccccccc"})
			e.decision = decide(e.view, nil, noon)
		}},
		"it is rejected": {notBegun: true, meanwhile: func(e *Machine, i *instanceState) {
			e.view.Channel = e.view.Channel.Reject(channel.Rejection{Digest: digestLike(i.matters[0]), Snapshot: i.matters[0], At: noon})
			e.decision = decide(e.view, nil, noon)
		}},
		"it is rejected, and a newer one is published": {notBegun: true, meanwhile: func(e *Machine, i *instanceState) {
			e.view.Channel = e.view.Channel.Reject(channel.Rejection{Digest: digestLike(i.matters[0]), Snapshot: i.matters[0], At: noon})
			e.view.IDs = append(e.view.IDs, snapshots.ID{Revision: 3, Short: "cccccccccc"})
			e.decision = decide(e.view, nil, noon)
		}},
		"held": {notBegun: true, meanwhile: func(e *Machine, _ *instanceState) { e.decision.Hold = true }},
		"out of reach": {notBegun: true, meanwhile: func(_ *Machine, i *instanceState) {
			i.err = errors.New("no route")
		}},
		"left the fleet": {notBegun: true, meanwhile: func(e *Machine, _ *instanceState) { delete(e.instances, "a") }},
		"another instance": {notBegun: true, meanwhile: func(e *Machine, i *instanceState) {
			other := *i
			other.joined++
			e.instances["a"] = &other
		}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			e, i, push := proposing(t)
			if begun, _ := e.begun(); len(begun) > 0 {
				t.Fatalf("begun before it was saved: %v", begun)
			}
			SaveEnded{Err: test.err}.apply(e, noon)
			if test.meanwhile != nil {
				test.meanwhile(e, i)
			}
			e.jobs.beginApproved(true, noon)
			begun, results := e.begun()
			if len(begun) == 1 != test.begun {
				t.Errorf("begun is %v", begun)
			}
			if test.notBegun != (len(results) == 1 && results[0].Outcome == rollout.NotBegun && results[0].Snapshot == push.Snapshot) {
				t.Errorf("results are %+v", results)
			}
			if saved := test.err == nil; (e.state.Rollout.Rollout != nil) != saved || e.proposed != nil {
				t.Errorf("the rollout is %+v", e.state.Rollout.Rollout)
			}
			if len(e.saving.approved) > 0 {
				t.Errorf("approved are still %v", e.saving.approved)
			}
		})
	}
}

// An instance that is busy when the step is saved gets its push when it is free, and nothing else before.
func TestApprovedPushWaitsForAJob(t *testing.T) {
	t.Parallel()
	e, i, _ := proposing(t)
	i.busy = workUpdate
	SaveEnded{}.apply(e, noon)
	e.jobs.beginApproved(true, noon)
	if begun, results := e.begun(); len(begun) > 0 || len(results) > 0 || !e.saving.reservedFor(i, noon.Add(time.Hour)) {
		t.Fatalf("begun %v, results %v", begun, results)
	}
	i.busy = ""
	e.jobs.beginApproved(true, noon)
	if begun, _ := e.begun(); len(begun) != 1 || i.busy != workPush {
		t.Errorf("begun %v", begun)
	}
}

// Results that arrive during a save are for the next step. If the save fails, its step's results are used
// again.
func TestResultsAreTakenOnce(t *testing.T) {
	t.Parallel()
	for _, err := range []error{nil, errors.New("disk full")} {
		e := newMachine(State{Uploads: map[string][]Upload{}}, noon)
		e.results, e.reloads = []rollout.Result{{Instance: "a"}}, map[string]int{"a": 1, "b": 1}
		e.saving.propose(rollout.State{Good: snapshots.ID{Revision: 1, Short: "aaaaaaaaaa"}}, nil, nil, noon)
		e.results, e.reloads["b"] = append(e.results, rollout.Result{Instance: "b"}), 2
		SaveEnded{Err: err}.apply(e, noon)
		results, reloads := len(e.results), len(e.reloads)
		if err == nil && (results != 1 || e.results[0].Instance != "b" || reloads != 1) || err != nil && (results != 2 || reloads != 2) || e.reloads["b"] != 2 {
			t.Errorf("after %v there are %v and %v", err, e.results, e.reloads)
		}
	}
}

// A save that does not even end at its timeout is reported. No other save begins meanwhile.
func TestSaveThatDoesNotEndIsTold(t *testing.T) {
	t.Parallel()
	e, _, _ := proposing(t)
	begun := len(e.effects)
	for _, test := range []struct {
		after time.Duration
		told  bool
	}{{SaveTimeout, false}, {SaveTimeout + 2*time.Second, true}, {time.Hour, true}} {
		e.saving.keepState(noon.Add(test.after))
		if _, told := e.troubles["state"]; told != test.told || len(e.effects) != begun {
			t.Errorf("after %s it is told: %v, and effects are %v", test.after, told, e.effects)
		}
	}
	SaveEnded{}.apply(e, noon.Add(time.Hour))
	if len(e.troubles) > 0 {
		t.Errorf("troubles are %v", e.troubles)
	}
}

// Where nothing changes, a state in a cluster is saved more seldom than one in a file. One save that fails leaves the status fresh.
func TestSavedThoughNothingChanges(t *testing.T) {
	t.Parallel()
	for elsewhere, want := range map[bool]int{false: 12, true: 6} {
		e := newMachine(State{}, noon)
		e.StateElsewhere = elsewhere
		saves := 0
		e.reporting.look(noon)
		e.saving.keepState(noon)
		e.endSave(nil, noon)
		for now := noon; now.Before(noon.Add(time.Minute)); {
			now = now.Add(250 * time.Millisecond)
			e.reporting.look(now)
			e.saving.keepState(now)
			if _, saved := e.endSave(nil, now); saved {
				saves++
			}
		}
		if saves != want {
			t.Errorf("elsewhere %v: saved %d times in a minute, want %d", elsewhere, saves, want)
		}
		if beat, _ := e.saving.saveIntervals(); beat+2*SaveTimeout+firstSaveRetry >= report.FreshState {
			t.Errorf("elsewhere %v: the status is old after a save that fails", elsewhere)
		}
	}
}

// An instance that is forgotten while a step is being saved is still forgotten after the save.
func TestForgottenWhileAStepIsSaved(t *testing.T) {
	t.Parallel()
	e, _, _ := proposing(t)
	e.change(func(s rollout.State) rollout.State { return s.Forget("a") })
	SaveEnded{}.apply(e, noon)
	if len(e.state.Rollout.Instances) > 0 || e.state.Rollout.Rollout == nil {
		t.Errorf("the state is %+v", e.state.Rollout)
	}
}

// A full disk is reported once. Saves are repeated more and more rarely, and no push begins without its save.
// When there is space again, everything continues.
func TestFailureDiskOfTheStateFull(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	w := newSteps(t, 1, func() worldStore { return dirstore.Open(dir, dirstore.Options{}) })
	w.publish()
	var log bytes.Buffer
	people := observe.New(observe.Options{
		Log: slog.New(slog.NewTextHandler(&log, nil)), Metrics: prometheus.NewRegistry(), Tracers: noop.NewTracerProvider(), Notify: func(notify.Notice) {},
	})
	pushes, tries := 0, 0
	for range 600 { // a minute of turns
		w.now = w.now.Add(100 * time.Millisecond)
		e := w.e
		view, err := w.store.View(t.Context())
		e.takeView(view, err, w.now)
		e.decision = decide(e.view, e.state.Rollout.Failed, w.now)
		e.tellInstances()
		w.read()
		next, begun, waits := e.policy.Step(e.state.Rollout, e.rolling.rolloutInput(w.now), w.now)
		if !sameJSON(next, e.state.Rollout) && e.saving.mayPropose(w.now) {
			e.saving.propose(next, begun, waits, w.now)
		}
		e.reporting.look(w.now)
		people.Record(e.Facts()...)
		e.saving.keepState(w.now)
		full := fmt.Errorf("save state: write .state.json.%d: no space left on device", 1000+7*tries)
		if _, tried := e.endSave(full, w.now); tried {
			tries++
		}
		pushes += len(e.saving.approved)
	}
	if pushes > 0 {
		t.Errorf("%d pushes were approved that were not saved", pushes)
	}
	if tries > 14 || tries < 6 {
		t.Errorf("saving was tried %d times in a minute", tries)
	}
	if n := strings.Count(log.String(), observe.TroubleMessage("state")); n != 1 {
		t.Errorf("the log has %d lines of it:\n%s", n, log.String())
	}
	w.now = w.now.Add(lastSaveRetry)
	w.settle()
	people.Record(w.e.Facts()...)
	if n := strings.Count(log.String(), "works again"); n != 1 {
		t.Errorf("the log says %d times that it is over:\n%s", n, log.String())
	}
}

var errTaken = errors.New("another pusher has taken the state")

// If two instances report the same later term, the term is raised once, and both are claimed in it.
func TestTermIsRaisedOnce(t *testing.T) {
	t.Parallel()
	m := newMachine(State{}, noon)
	m.Lead(1)
	for _, name := range []string{"a", "b"} {
		m.instances[name] = &instanceState{Instance: fleet.Instance{Name: name}, asked: true, busy: workClaim}
	}
	met := func(name string) {
		ref := m.instances[name].ref()
		OfInstance{instance.ClaimEnded{About: instance.About{Ref: ref}, Term: 1, Err: push.OutrankedError{Term: 1, By: 41}}}.apply(m, noon)
	}
	var raised []RaiseTerm
	begin := func() {
		m.saving.keepState(noon)
		for _, x := range m.effects {
			if r, is := x.(RaiseTerm); is {
				raised = append(raised, r)
			}
		}
		m.effects = nil
	}
	met("a")
	begin()
	met("b") // while the term is being raised
	begin()
	if len(raised) != 1 || raised[0].Above != 41 {
		t.Fatalf("raised are %v", raised)
	}
	Raised{RaiseTerm: raised[0], Term: 42}.apply(m, noon)
	begin()
	m.leadership.beginClaims(noon)
	if len(raised) != 1 || m.term.number != 42 || m.instances["a"].busy != workClaim || m.instances["b"].busy != workClaim {
		t.Errorf("raised are %v, the term is %d, a is busy with %q, b with %q", raised, m.term.number, m.instances["a"].busy, m.instances["b"].busy)
	}
}

// The term is not raised above one that leaves none for later pushers: only the instance that names it has an error.
func TestTermIsNotRaisedTooFar(t *testing.T) {
	t.Parallel()
	m := newMachine(State{}, noon)
	m.Lead(1)
	i := &instanceState{Instance: fleet.Instance{Name: "a"}, asked: true, busy: workClaim}
	m.instances["a"] = i
	OfInstance{instance.ClaimEnded{About: instance.About{Ref: i.ref()}, Term: 1, Err: push.OutrankedError{Term: 1, By: push.MaxTerm}}}.apply(m, noon)
	if m.saving.raise != nil || !strings.Contains(i.jobError, "by a pusher of term 9007199254740992") {
		t.Errorf("raised is %v, the error of the instance is %q", m.saving.raise, i.jobError)
	}
}

// If a state is too large for its store, it is saved without the slots of the backends with the most servers.
// So steps of rollouts still happen: a tenant with many endpoints cannot block a pin.
func TestStateThatDoesNotFit(t *testing.T) {
	t.Parallel()
	slots := bind.Slots{}
	for n := range 5 {
		key := bind.SlotKey{Backend: fmt.Sprint("backend-", n), Service: snapshots.ServicePort{Namespace: "shop", Service: fmt.Sprint("s", n), Port: "http"}}
		slots[key] = make([]bind.Slot, 10*(n+1))
	}
	m := newMachine(State{Slots: slots}, noon)
	s := m.saving
	saved := func() int {
		data, err := s.encoded(noon)
		if err != nil {
			t.Fatal(err)
		}
		state, err := ParseState(data, "test")
		if err != nil {
			t.Fatal(err)
		}
		for key, group := range state.Slots {
			if len(group) > 10*len(state.Slots) {
				t.Errorf("with %d groups, %s is saved, which has %d slots", len(state.Slots), key, len(group))
			}
		}
		return len(state.Slots)
	}
	for n, want := range []int{5, 4, 3, 1, 0} {
		if got := saved(); got != want {
			t.Errorf("after %d failures %d groups are saved, want %d", n, got, want)
		}
		SaveEnded{Err: fmt.Errorf("save: %w", ErrStateTooLarge)}.apply(m, noon)
		if s.retry.at.After(noon) && n < 4 {
			t.Errorf("after %d failures the next save waits", n+1)
		}
	}
	if !s.retry.at.After(noon) {
		t.Error("without anything to leave out, it does not wait")
	}
	SaveEnded{}.apply(m, noon)
	if len(s.troubles) == 0 {
		t.Error("nobody is told")
	}
}

// Each save has the slots of the moment, although they are not written as JSON again while they stay.
func TestSavesHaveTheSlotsOfTheMoment(t *testing.T) {
	t.Parallel()
	settings := usual
	settings.Source = binding.FromDirectory
	m := New(settings, State{}, nil, noon)
	draft := func(services ...string) snapshots.Draft {
		text := "backend b\n"
		for _, s := range services {
			text += "    #hapsnap servers " + httpPort(s).String() + "\n"
		}
		return snapshots.Draft{Files: []snapshots.File{{Path: snapshots.ConfigFile, Content: []byte(text)}}}
	}
	have, random := map[snapshots.ID]snapshots.Snapshot{}, rand.New(rand.NewPCG(1, 2))
	live, changes, last := bind.Live{Endpoints: map[snapshots.ServicePort][]snapshots.Endpoint{}}, 0, ""
	for step := range 200 {
		now := noon.Add(time.Duration(step) * time.Minute)
		switch random.IntN(4) {
		case 0:
			s := draft([]string{"a", "b", "c"}[random.IntN(3)], "d").Number(1, snapshots.ID{})
			clear(have)
			have[s.ID()] = s
			m.live.Use(have, now)
			m.bindings.Prune()
		case 1:
			live.Endpoints = maps.Clone(live.Endpoints)
			live.Endpoints[httpPort([]string{"a", "d"}[random.IntN(2)])] = []snapshots.Endpoint{{Address: fmt.Sprintf("10.0.0.%d", 1+random.IntN(9)), Port: 80}}
			m.live.TakeRead(binding.Objects{Live: live}, now)
		}
		m.bindings.Assign(now, time.Second)
		data, err := m.saving.encoded(now)
		if err != nil {
			t.Fatal(err)
		}
		want, _ := m.bindings.Table()
		if got := parsed(t, data).Slots; !maps.EqualFunc(got, want, slices.Equal[[]bind.Slot]) {
			t.Fatalf("step %d: saved %v, want %v", step, got, want)
		}
		if text := fmt.Sprint(want); text != last {
			last = text
			changes++
		}
	}
	if changes < 20 {
		t.Errorf("the slots changed %d times", changes)
	}
}
