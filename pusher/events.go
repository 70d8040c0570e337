package pusher

import (
	"context"
	"errors"
	"log/slog"
	"reflect"
	"time"

	"github.com/hapsnap/hapsnap/pusher/binding"
	"github.com/hapsnap/hapsnap/pusher/cluster"
	"github.com/hapsnap/hapsnap/pusher/fleet"
	"github.com/hapsnap/hapsnap/pusher/observe"
	"github.com/hapsnap/hapsnap/pusher/rollout"
	"github.com/hapsnap/hapsnap/snapshots"
	"github.com/hapsnap/hapsnap/snapshots/channel"
)

// event is something that the engine learns: what a source says, or how an effect ended. It
// is a value, which the log and tests can print. Those of instances are in
// package instance, and ends.go takes them.
type event interface {
	// apply has the engine take the event. It waits for nothing.
	apply(e *engine, now time.Time)
	// String says what happened, and to whom. It contains no secrets.
	String() string
}

// levelEvent is the level at which the log has every event: below debug, as there are
// several for each instance and second.
const levelEvent = slog.LevelDebug - 4

// take applies an event.
func (e *engine) take(ev event) {
	if e.Log.Enabled(context.Background(), levelEvent) {
		e.Log.Log(context.Background(), levelEvent, "event", "event", ev.String())
	}
	e.eventLog.take(e, ev, time.Now())
}

// viewRead is the end of a look into the store.
type viewRead struct {
	view channel.View
	err  error
}

func (v viewRead) apply(e *engine, now time.Time) { e.takeView(v.view, v.err, now) }

func (v viewRead) String() string {
	return observe.Describe("store read", "newest", v.view.Head(), "snapshots", len(v.view.IDs), "err", v.err)
}

// takeView takes what the store said.
func (e *engine) takeView(view channel.View, err error, now time.Time) {
	e.trouble("store", err, now)
	e.rewound = errors.Is(err, channel.ErrRewound)
	if err != nil {
		return
	}
	if view.Seen != e.state.Seen {
		e.state.Seen, e.dirty = view.Seen, true
	}
	view.Fleet = e.fleetName
	e.view, e.viewRead = view, true
	e.confirmLosses(now)
}

// liveRead is the end of a read of the directory with live objects.
type liveRead struct {
	live binding.Objects
	err  error
}

func (l liveRead) apply(e *engine, now time.Time) { e.takeLive(l.live, l.err, now) }

func (l liveRead) String() string {
	return observe.Describe("live objects read", "services", len(l.live.Endpoints), "certificates", len(l.live.Certificates), "err", l.err)
}

// fleetRead is the end of a read of the fleet's file.
type fleetRead struct {
	fleet fleet.Fleet
	err   error
}

func (f fleetRead) apply(e *engine, now time.Time) { e.takeFleet(f.fleet, f.err, now) }

func (f fleetRead) String() string {
	return observe.Describe("fleet read", "fleet", f.fleet.Name, "instances", len(f.fleet.Instances), "err", f.err)
}

// takeFleet takes the fleet's file. The pusher connects anew to instances that changed.
func (e *engine) takeFleet(f fleet.Fleet, err error, now time.Time) {
	e.trouble("fleet", err, now)
	if err != nil {
		return
	}
	e.takePolicy(f.Rollout.Apply(rollout.DefaultPolicy()))
	e.listed, e.fleetName, e.view.Fleet = f.Instances, f.Name, f.Name
	e.followPods(f.Pods, now)
	e.gather(now)
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

// podsFound is what discovery knows of the pods that are looked for.
type podsFound struct {
	of    *fleet.Pods
	found []fleet.Instance
	err   error
}

func (p podsFound) apply(e *engine, now time.Time) { e.takePods(p.of, p.found, p.err, now) }

func (p podsFound) String() string {
	return observe.Describe("pods found", "pods", len(p.found), "err", p.err)
}

// clusterChanged is what changed in the cluster since the last time.
type clusterChanged struct{ change cluster.Change }

func (c clusterChanged) apply(e *engine, now time.Time) { e.takeCluster(c.change, now) }

func (c clusterChanged) String() string {
	return observe.Describe("cluster changed", "services", len(c.change.Endpoints), "secrets", len(c.change.Secrets), "status", c.change.Status != nil)
}

// snapshotRead is the end of a read of a snapshot, or of keeping it on disk once more.
type snapshotRead struct {
	id       snapshots.ID
	snapshot snapshots.Snapshot
	err      error
}

func (s snapshotRead) apply(e *engine, now time.Time) {
	e.snapshotCache.Take(s.id, s.snapshot, s.err, now)
}

func (s snapshotRead) String() string {
	return observe.Describe("snapshot read", "snapshot", s.id, "err", s.err)
}

// certificatesOpened is the end of opening the certificates that a snapshot carries, which
// are found by version.
type certificatesOpened struct {
	id    snapshots.ID
	found map[string][]byte
	err   error
}

func (c certificatesOpened) apply(e *engine, now time.Time) {
	e.live.Decrypted(c.id, c.found, c.err, now)
}

func (c certificatesOpened) String() string {
	return observe.Describe("certificates opened", "snapshot", c.id, "certificates", len(c.found), "err", c.err)
}

// rejectionWritten is the end of noting a failed snapshot in the channel.
type rejectionWritten struct {
	id  snapshots.ID
	err error
}

func (r rejectionWritten) apply(e *engine, now time.Time) {
	e.rejecting, e.rejectAt = false, now.Add(5*time.Second)
	e.trouble("channel", r.err, now)
}

func (r rejectionWritten) String() string {
	return observe.Describe("rejection written", "snapshot", r.id, "err", r.err)
}
