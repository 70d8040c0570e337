package pusher

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/hapsnap/hapsnap/pusher/fleet"
	"github.com/hapsnap/hapsnap/pusher/push"
	"github.com/hapsnap/hapsnap/pusher/rollout"
)

// membership is who belongs to the fleet, as far as that is known.
type membership struct {
	fleetName string           // in the file
	listed    []fleet.Instance // in the file
	found     []fleet.Instance // among the pods
	pods      *fleet.Pods      // which pods are looked for, nil for none
	// podsRead is set once the pods were read that are looked for.
	podsRead bool
	stopPods chan struct{}
}

var errNoCluster = errors.New("the fleet has pods, and no cluster is known to look for them in")

// followPods looks for other pods from now on, if the fleet's file says so.
func (e *engine) followPods(pods *fleet.Pods, now time.Time) {
	if e.pods == pods || (e.pods != nil && pods != nil && *e.pods == *pods) {
		return
	}
	if e.stopPods != nil {
		close(e.stopPods)
	}
	e.pods, e.podsRead, e.stopPods = pods, false, nil
	if pods == nil {
		e.found = nil
		e.trouble("pods", nil, now)
		return
	}
	e.stopPods = make(chan struct{})
	e.begin(watchPods{e.Options, pods, e.stopPods})
}

// takePods takes which pods are instances. Those that were known stay where nothing
// new is known.
func (e *engine) takePods(of *fleet.Pods, found []fleet.Instance, err error, now time.Time) {
	if e.pods != of {
		return // others are looked for by now
	}
	e.trouble("pods", err, now)
	if err != nil && found == nil {
		return
	}
	e.found, e.podsRead = found, true
	e.gather(now)
}

// gather meets the instances that are new to the fleet, and lets go of those that
// are in it no more. Those among pods that are looked for and not read yet are not
// known to have left.
func (e *engine) gather(now time.Time) {
	members := map[string]bool{}
	for _, spec := range slices.Concat(e.listed, e.found) {
		if members[spec.Name] {
			continue // the file comes first
		}
		members[spec.Name] = true
		switch old := e.instances[spec.Name]; {
		case old == nil || !old.sameBut(spec):
			e.join(spec, now)
		case old.Instance != spec:
			e.renew(old, spec, now)
		}
	}
	for name, i := range e.instances {
		if !members[name] {
			i.leave()
			delete(e.instances, name)
			if i.UID != "" {
				delete(e.state.Uploads, name) // they went with the pod
			}
			e.Log.Info("instance left the fleet", "instance", name)
		}
	}
}

// known reports whether it is known who belongs to the fleet. Without one pod there
// is nobody to decide for: a rollout would find nothing in its way.
func (e *engine) known() bool {
	return e.pods == nil || (e.podsRead && len(e.instances) > 0)
}

// leave ends what is done with an instance that is gone. The address of a pod may be
// another's in a moment.
func (i *instance) leave() {
	close(i.stop)
	if i.UID != "" {
		close(i.gone)
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
	if err := i.client.Renew(e.access(spec)); err != nil {
		e.trouble("fleet", fmt.Errorf("instance %s: %w", spec.Name, err), now)
		return
	}
	i.Instance = spec
	e.Log.Info("credentials of instance renewed", "instance", spec.Name)
}

// join begins to ask an instance what it runs.
func (e *engine) join(spec fleet.Instance, now time.Time) {
	i, err := e.connect(spec)
	if err != nil {
		e.trouble("fleet", err, now)
		return
	}
	switch old := e.instances[spec.Name]; {
	case old == nil:
		i.kept = e.state.Instances[spec.Name]
		e.Log.Info("instance joined the fleet", "instance", spec.Name, "url", spec.URL)
	case old.UID == spec.UID:
		close(old.stop)
		e.change(func(s rollout.State) rollout.State { return s.Forgive(spec.Name) })
		i.busy = old.busy // its job ends as it began
		i.kept = old.kept
		i.target.Names, i.target.Record = old.target.Names, old.target.Record
		i.ByHand, i.running.Disk = old.running.ByHand, old.running.Disk
	default:
		old.leave()
		i.kept = old.kept
		e.Log.Info("instance was replaced by another of its name", "instance", spec.Name, "url", spec.URL)
	}
	if i.Of != spec.UID {
		i.kept = kept{Of: spec.UID}
		e.change(func(s rollout.State) rollout.State { return s.Forget(spec.Name) })
		delete(e.state.Uploads, spec.Name)
		delete(e.reloads, spec.Name)
		if p := e.saves.proposed; p != nil {
			delete(p.reloads, spec.Name)
		}
		e.dirty = true
	}
	i.running.ByHand = i.ByHand
	if old := e.instances[spec.Name]; old == nil || old.UID != spec.UID {
		i.target.Record = push.NewRecord(i.Record)
	}
	i.target.API = e.leadership.around(i.client, i.target.Record)
	if i.Alias.Runs != "" && i.target.Names.Alias().Runs == "" {
		i.target.Names.Set(i.Alias)
	}
	e.instances[spec.Name] = i
	e.begin(askInstance{e.remote(i), e.PollInterval, cmp.Or(min(askTimeout, e.ReloadTimeout), askTimeout), i.stop})
}

// checkOnce begins to check an instance that answers for the first time, or again, for what
// would keep a push from working. Nothing waits for that.
func (e *engine) checkOnce(i *instance) {
	switch {
	case !i.reachable():
		i.checked = false
	case !i.checked:
		i.checked = true
		e.begin(checkInstance{e.remote(i)})
	}
}
