package pusher

import (
	"context"
	"errors"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/hapsnap/hapsnap/internal/testing/dataplanetest"
	"github.com/hapsnap/hapsnap/pusher/fleet"
	"github.com/hapsnap/hapsnap/pusher/instance"
	"github.com/hapsnap/hapsnap/pusher/observe"
	"github.com/hapsnap/hapsnap/pusher/rollout"
	"github.com/hapsnap/hapsnap/pusher/statestore"
	"github.com/hapsnap/hapsnap/snapshots"
	"github.com/hapsnap/hapsnap/snapshots/channel"
)

// endSave does what the runner does with a save that was begun, and reports whether the state
// was saved. Where none was begun, it was not.
func (e *engine) endSave(t *testing.T, now time.Time) bool {
	t.Helper()
	effects := e.effects
	e.effects = nil
	for _, x := range effects {
		if s, is := x.(SaveState); is {
			err := save(t.Context(), e.services.keeper, s)
			SaveEnded{err}.apply(e, now)
			return err == nil
		}
	}
	return false
}

// commit saves a step that begins no push, and returns false if that could not be done.
func (e *engine) commit(t *testing.T, next rollout.State, waits []rollout.Wait, now time.Time) bool {
	t.Helper()
	if sameJSON(next, e.state.Rollout) {
		e.waits, e.results, e.reloads = waits, nil, map[string]int{}
		return true
	}
	if !e.mayPropose(now) {
		return false
	}
	e.propose(next, nil, waits, now)
	return e.endSave(t, now)
}

// What is saved at the end of a rollout no longer waits for what its last step waited
// for: whoever reads the file then would be told so for as long as it takes to save again.
func TestSavedWithWhatItWaitsFor(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 11, 22, 3, 0, 0, 0, time.UTC)
	o := Options{State: filepath.Join(t.TempDir(), "state.json")}.withDefaults()
	fresh, err := readState(o.State)
	if err != nil {
		t.Fatal(err)
	}
	e := newEngine(o, fresh, nil, now)
	good := func(revision uint64) rollout.State {
		return rollout.State{Good: snapshots.ID{Revision: revision, Short: "0123456789"}}
	}
	if !e.commit(t, good(1), []rollout.Wait{{For: "its push", Instance: "edge-1"}}, now) || !e.commit(t, good(2), nil, now) {
		t.Fatal("not saved")
	}
	if s, err := ReadStatus(e.State); err != nil || s.Good.Revision != 2 || len(s.Waits) != 0 {
		t.Errorf("the file says %+v, %v", s, err)
	}
}

// hangingKeeper is a state store that can cease to answer.
type hangingKeeper struct {
	stateFile
	// deaf is set where it does not even heed that its caller gives up.
	deaf bool

	mu   sync.Mutex
	open chan struct{} // closed while it answers
}

func newHangingKeeper(file string, deaf bool) *hangingKeeper {
	k := &hangingKeeper{stateFile: stateFile{file: file}, deaf: deaf, open: make(chan struct{})}
	close(k.open)
	return k
}

// hang has it cease to answer until the function is called that it returns.
func (k *hangingKeeper) hang() (release func()) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.open = make(chan struct{})
	return sync.OnceFunc(func() { close(k.open) })
}

func (k *hangingKeeper) wait(ctx context.Context) error {
	k.mu.Lock()
	open := k.open
	k.mu.Unlock()
	if k.deaf {
		<-open
		return nil
	}
	select {
	case <-open:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

func (k *hangingKeeper) Save(ctx context.Context, data []byte) error {
	if err := k.wait(ctx); err != nil {
		return err
	}
	return k.stateFile.Save(ctx, data)
}

// A state store that does not answer stops neither endpoint updates nor probes. A rollout
// waits for it: nothing is pushed whose step is not saved.
func TestFailureStateStoreHangs(t *testing.T) {
	t.Parallel()
	for name, deaf := range map[string]bool{"until its caller gives up": false, "for good": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newRig(t, dataplanetest.V34, "a")
			one, two := echo(t, "one"), echo(t, "two")
			k := newHangingKeeper(r.options.State, deaf)
			r.options.Keeper = k
			r.endpoints(one)
			first := r.publish(config("1", ""))
			r.allRunAfter(first)
			took := func(address, body string) time.Duration {
				t.Helper()
				began := time.Now()
				r.endpoints(address)
				eventually(t, "the worker has it", func() bool { return r.answersOnly("a", body) })
				return time.Since(began)
			}
			ordinary := took(two, "two")
			release := k.hang()
			defer release()
			second := r.publish(config("2", ""))
			r.until("it is wanted", func(s observe.Status) bool { return s.Channel.Wanted == second })
			for n := range 3 { // all of which take less than the store is waited for
				address, body := one, "one"
				if n%2 == 1 {
					address, body = two, "two"
				}
				if hung := took(address, body); hung > max(5*ordinary, time.Second) {
					t.Errorf("a change took %s while the state store hangs, and %s before", hung, ordinary)
				}
			}
			seen := r.until("what the worker runs is still asked for", func(s observe.Status) bool {
				a := statusOf(s, "a")
				return a.Reachable && a.Running == first && a.Doing == "" && a.Error == ""
			})
			if seen.Rollout != nil || r.pushes("a") != 1 {
				t.Errorf("the rollout is %+v, and there were %d pushes, though no step was saved", seen.Rollout, r.pushes("a"))
			}
			release()
			s := r.allRun(second)
			r.until("the trouble is over", func(s observe.Status) bool { return len(s.Troubles) == 0 })
			if s.Good != second {
				t.Errorf("good is %s", s.Good)
			}
		})
	}
}

// proposing is an engine with one instance, which has proposed to push a snapshot to it.
func proposing(t *testing.T) (*engine, *instanceState, rollout.Push) {
	t.Helper()
	o := Options{State: filepath.Join(t.TempDir(), "state.json")}.withDefaults()
	e := newEngine(o, state{Uploads: map[string][]upload{}}, nil, noon)
	i := &instanceState{Instance: fleet.Instance{Name: "a"}, asked: true}
	e.instances["a"] = i
	e.viewRead = true
	push := rollout.Push{Instance: "a", Snapshot: snapshots.ID{Revision: 2, Short: "bbbbbbbbbb"}, Purpose: rollout.Wave}
	e.view.IDs, i.matters = []snapshots.ID{push.Snapshot}, []snapshots.ID{push.Snapshot}
	e.view.Runs = push.Snapshot
	next := rollout.State{Instances: map[string]rollout.Instance{"a": {Push: &push}}, Rollout: &rollout.Rollout{Target: push.Snapshot, Phase: rollout.Pushing}}
	e.propose(next, []rollout.Push{push}, nil, noon)
	e.decision = decide(e.view, nil, noon)
	return e, i, push
}

// begun returns what the pushes of an engine came to: those that were begun, and the results
// of those that were not.
func (e *engine) begun() (begun []string, results []rollout.Result) {
	for _, x := range e.effects {
		if on, is := x.(OnInstance); is {
			if p, is := on.Effect.(instance.Push); is {
				begun = append(begun, p.Name)
			}
		}
	}
	return begun, e.results
}

// A push whose step is saved is begun in the world that the step saw, and in no other.
func TestApprovedPushes(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		meanwhile func(e *engine, i *instanceState)
		err       error // of the save
		begun     bool
		notBegun  bool // and the rollout is told
	}{
		"nothing changed":         {begun: true},
		"not saved":               {err: errors.New("disk full")},
		"taken by another pusher": {err: statestore.ErrTaken},
		"pinned": {notBegun: true, meanwhile: func(e *engine, _ *instanceState) {
			e.decision.Intent = "pin"
		}},
		"a newer one is published": {begun: true, meanwhile: func(e *engine, _ *instanceState) {
			e.view.IDs = append(e.view.IDs, snapshots.ID{Revision: 3, Short: "cccccccccc"})
			e.decision = decide(e.view, nil, noon)
		}},
		"it is rejected": {notBegun: true, meanwhile: func(e *engine, i *instanceState) {
			e.view.Channel = e.view.Channel.Reject(channel.Rejection{Digest: digestLike(i.matters[0]), Snapshot: i.matters[0], At: noon})
			e.decision = decide(e.view, nil, noon)
		}},
		"it is rejected, and a newer one is published": {notBegun: true, meanwhile: func(e *engine, i *instanceState) {
			e.view.Channel = e.view.Channel.Reject(channel.Rejection{Digest: digestLike(i.matters[0]), Snapshot: i.matters[0], At: noon})
			e.view.IDs = append(e.view.IDs, snapshots.ID{Revision: 3, Short: "cccccccccc"})
			e.decision = decide(e.view, nil, noon)
		}},
		"held": {notBegun: true, meanwhile: func(e *engine, _ *instanceState) { e.decision.Hold = true }},
		"out of reach": {notBegun: true, meanwhile: func(_ *engine, i *instanceState) {
			i.err = errors.New("no route")
		}},
		"left the fleet": {notBegun: true, meanwhile: func(e *engine, _ *instanceState) { delete(e.instances, "a") }},
		"another instance": {notBegun: true, meanwhile: func(e *engine, i *instanceState) {
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
			SaveEnded{test.err}.apply(e, noon)
			if test.meanwhile != nil {
				test.meanwhile(e, i)
			}
			e.beginApproved(true, noon)
			begun, results := e.begun()
			if len(begun) == 1 != test.begun {
				t.Errorf("begun is %v", begun)
			}
			if test.notBegun != (len(results) == 1 && results[0].Outcome == rollout.NotBegun && results[0].Snapshot == push.Snapshot) {
				t.Errorf("results are %+v", results)
			}
			if saved := test.err == nil; (e.state.Rollout.Rollout != nil) != saved || e.saves.proposed != nil {
				t.Errorf("the rollout is %+v", e.state.Rollout.Rollout)
			}
			if len(e.saves.approved) > 0 {
				t.Errorf("approved are still %v", e.saves.approved)
			}
		})
	}
}

// An instance that is busy when the step is saved gets its push when that is over, and nothing
// else before.
func TestApprovedPushWaitsForAJob(t *testing.T) {
	t.Parallel()
	e, i, _ := proposing(t)
	i.busy = workUpdate
	SaveEnded{}.apply(e, noon)
	e.beginApproved(true, noon)
	if begun, results := e.begun(); len(begun) > 0 || len(results) > 0 || !e.saves.reservedFor(i, noon.Add(time.Hour)) {
		t.Fatalf("begun %v, results %v", begun, results)
	}
	i.busy = ""
	e.beginApproved(true, noon)
	if begun, _ := e.begun(); len(begun) != 1 || i.busy != workPush {
		t.Errorf("begun %v", begun)
	}
}

// Results that came while a step was saved are for the step after it; those that it took are
// taken again if it was not saved.
func TestResultsAreTakenOnce(t *testing.T) {
	t.Parallel()
	for _, err := range []error{nil, errors.New("disk full")} {
		e := newEngine(Options{State: "none"}.withDefaults(), state{Uploads: map[string][]upload{}}, nil, noon)
		e.results, e.reloads = []rollout.Result{{Instance: "a"}}, map[string]int{"a": 1, "b": 1}
		e.propose(rollout.State{Good: snapshots.ID{Revision: 1, Short: "aaaaaaaaaa"}}, nil, nil, noon)
		e.results, e.reloads["b"] = append(e.results, rollout.Result{Instance: "b"}), 2
		SaveEnded{err}.apply(e, noon)
		results, reloads := len(e.results), len(e.reloads)
		if err == nil && (results != 1 || e.results[0].Instance != "b" || reloads != 1) || err != nil && (results != 2 || reloads != 2) || e.reloads["b"] != 2 {
			t.Errorf("after %v there are %v and %v", err, e.results, e.reloads)
		}
	}
}

// A save that not even its timeout ends is told, and nothing is saved beside it.
func TestSaveThatDoesNotEndIsTold(t *testing.T) {
	t.Parallel()
	e, _, _ := proposing(t)
	begun := len(e.effects)
	for _, test := range []struct {
		after time.Duration
		told  bool
	}{{saveTimeout, false}, {saveTimeout + 2*time.Second, true}, {time.Hour, true}} {
		e.keepState(noon.Add(test.after))
		if _, told := e.troubles["state"]; told != test.told || len(e.effects) != begun {
			t.Errorf("after %s it is told: %v, and effects are %v", test.after, told, e.effects)
		}
	}
	SaveEnded{}.apply(e, noon.Add(time.Hour))
	if len(e.troubles) > 0 {
		t.Errorf("troubles are %v", e.troubles)
	}
}

// What an instance is forgiven, or forgotten for, while a step is saved holds after it too.
func TestForgottenWhileAStepIsSaved(t *testing.T) {
	t.Parallel()
	e, _, _ := proposing(t)
	e.change(func(s rollout.State) rollout.State { return s.Forget("a") })
	SaveEnded{}.apply(e, noon)
	if len(e.state.Rollout.Instances) > 0 || e.state.Rollout.Rollout == nil {
		t.Errorf("the state is %+v", e.state.Rollout)
	}
}
