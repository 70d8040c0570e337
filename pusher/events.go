package pusher

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"reflect"
	"time"

	"github.com/hapsnap/hapsnap/pusher/fleet"
	"github.com/hapsnap/hapsnap/pusher/rollout"
	"github.com/hapsnap/hapsnap/snapshots"
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
func (e *engine) takeView(view snapshots.View, err error, now time.Time) {
	e.trouble("store", err, now)
	if err == nil {
		e.view, e.viewRead = view, true
	}
}

// takeLive takes what was read of the live objects.
func (e *engine) takeLive(read liveData, err error, now time.Time) {
	if err == nil {
		var merged liveData
		merged, err = mergeLive(e.live, read)
		merged.Fallback = e.fallback
		e.live, e.liveRead = merged, true
		e.bindings.setLive(merged.Live, now)
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
	listed := map[string]bool{}
	for _, spec := range f.Instances {
		listed[spec.Name] = true
		switch old := e.instances[spec.Name]; {
		case old == nil || !old.sameBut(spec):
			e.meet(ctx, spec, now)
		case old.Instance != spec:
			e.renew(old, spec, now)
		}
	}
	for name, i := range e.instances {
		if !listed[name] {
			i.stop()
			delete(e.instances, name)
			e.Log.Info("instance left the fleet", "instance", name)
		}
	}
}

// sameBut reports whether nothing has changed of an instance but what it is asked
// with.
func (i *instance) sameBut(spec fleet.Instance) bool {
	spec.Username, spec.Password, spec.TLS = i.Username, i.Password, i.TLS
	return i.Instance == spec
}

// renew has an instance asked with other credentials from now on. Work that is
// under way goes on, with them: a push is not lost.
func (e *engine) renew(i *instance, spec fleet.Instance, now time.Time) {
	if err := i.client.Renew(access(spec)); err != nil {
		e.trouble("fleet", fmt.Errorf("instance %s: %w", spec.Name, err), now)
		return
	}
	i.Instance = spec
	e.Log.Info("credentials of instance renewed", "instance", spec.Name)
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

// meet begins to ask an instance what it runs.
func (e *engine) meet(ctx context.Context, spec fleet.Instance, now time.Time) {
	i, err := connect(spec, e.ReloadTimeout)
	if err != nil {
		e.trouble("fleet", err, now)
		return
	}
	if old := e.instances[spec.Name]; old != nil {
		old.stop()
		i.busy = old.busy // its job ends as it began
		i.kept = old.kept
		i.ByHand, i.running.Disk = old.running.ByHand, old.running.Disk
	} else {
		i.kept = e.state.Instances[spec.Name]
		e.Log.Info("instance joined the fleet", "instance", spec.Name, "url", spec.URL)
	}
	i.running.ByHand = i.ByHand
	ctx, i.stop = context.WithCancel(ctx)
	e.instances[spec.Name] = i
	e.start(func() {
		ask(ctx, i.client, e.PollInterval, cmp.Or(min(askTimeout, e.ReloadTimeout), askTimeout),
			e.hearing(ctx, i))
	})
}
