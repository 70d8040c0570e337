package pusher

import (
	"context"
	"errors"
	"reflect"
	"time"

	"github.com/hapsnap/hapsnap/pusher/fleet"
	"github.com/hapsnap/hapsnap/pusher/rollout"
	"github.com/hapsnap/hapsnap/snapshots/channel"
)

// send has the engine's goroutine run an event, unless ctx is done.
func (e *engine) send(ctx context.Context, event func(now time.Time)) {
	select {
	case e.events <- event:
	case <-ctx.Done():
	}
}

// drainEvents takes the events that are waiting, so that a turn sees them all.
func (e *engine) drainEvents() {
	for range cap(e.events) {
		select {
		case event := <-e.events:
			event(time.Now())
		default:
			return
		}
	}
}

// takeView takes what the store said.
func (e *engine) takeView(view channel.View, err error, now time.Time) {
	e.trouble("store", err, now)
	e.takeSeen(view, err, now)
	if err == nil {
		view.Fleet = e.fleetName
		e.view, e.viewRead = view, true
		e.confirmLosses(now)
	}
}

// takeLive takes what was read of the live objects.
func (e *engine) takeLive(read liveData, err error, now time.Time) {
	if err == nil {
		e.losses.read, e.losses.sliceless = true, read.slices == 0
		differ := e.hearEndpoints(e.reportsOf(read), now)
		merged := mergeLive(e.live, read, e.losses.guard.keepsIn)
		merged.Fallback = e.fallback
		if differ && e.liveRead {
			e.spread.came([]time.Time{now})
		}
		was := e.liveRead
		e.live, e.liveRead = merged, true
		if e.bindings.setLive(merged.Live, now) && was {
			e.spread.begin(spreadSecrets, []time.Time{now})
		}
		e.bindings.stale = true
	}
	e.trouble("live", err, now)
	e.troubleWithObjects(now)
}

// troubleWithObjects tells which live objects cannot be used.
func (e *engine) troubleWithObjects(now time.Time) {
	var problems []error
	for _, p := range e.live.problems {
		problems = append(problems, errors.New(p))
	}
	e.trouble("live objects", errors.Join(problems...), now)
}

// takeFleet takes the fleet's file. Instances that changed are met anew.
func (e *engine) takeFleet(ctx context.Context, f fleet.Fleet, err error, now time.Time) {
	e.trouble("fleet", err, now)
	if err != nil {
		return
	}
	e.takePolicy(f.Rollout.Apply(rollout.DefaultPolicy()))
	e.listed, e.fleetName, e.view.Fleet = f.Instances, f.Name, f.Name
	e.followPods(ctx, f.Pods, now)
	e.gather(ctx, now)
}

// takePolicy takes what the fleet's file says of rollouts, where flags do not.
func (e *engine) takePolicy(p rollout.Policy) {
	if len(e.Waves) > 0 {
		p.Waves = e.Waves
	}
	if e.Soak != nil {
		p.Soak = *e.Soak
	}
	if len(e.instances) > 0 && !reflect.DeepEqual(p, e.policy) {
		e.Log.Info("settings of the rollout changed")
	}
	e.policy = p
}
