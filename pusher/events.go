package pusher

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"reflect"
	"strings"
	"time"

	"github.com/hapsnap/hapsnap/pusher/cluster"
	"github.com/hapsnap/hapsnap/pusher/fleet"
	"github.com/hapsnap/hapsnap/pusher/rollout"
	"github.com/hapsnap/hapsnap/snapshots"
	"github.com/hapsnap/hapsnap/snapshots/channel"
)

// event is something that the engine learns: what a source says, or how an effect ended. It
// is a value, which the log and tests can print. Events of instances are in ends.go.
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
	ev.apply(e, time.Now())
}

// describe writes an event: what happened, then keys and values as the log has them. Keys
// whose value is empty are left out.
func describe(what string, keys ...any) string {
	var b strings.Builder
	b.WriteString(what)
	for n := 0; n+1 < len(keys); n += 2 {
		value := keys[n+1]
		if err, ok := value.(error); ok {
			value = brief(err)
		}
		if v := reflect.ValueOf(value); !v.IsValid() || v.IsZero() {
			continue
		}
		if text := fmt.Sprint(value); strings.ContainsAny(text, " \t\n\"=") {
			fmt.Fprintf(&b, " %s=%q", keys[n], text)
		} else {
			fmt.Fprintf(&b, " %s=%s", keys[n], text)
		}
	}
	return b.String()
}

// viewRead is the end of a look into the store.
type viewRead struct {
	view channel.View
	err  error
}

func (v viewRead) apply(e *engine, now time.Time) { e.takeView(v.view, v.err, now) }

func (v viewRead) String() string {
	return describe("store read", "newest", v.view.Head(), "snapshots", len(v.view.IDs), "err", v.err)
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
	live liveData
	err  error
}

func (l liveRead) apply(e *engine, now time.Time) { e.takeLive(l.live, l.err, now) }

func (l liveRead) String() string {
	return describe("live objects read", "services", len(l.live.Endpoints), "certificates", len(l.live.Certificates), "err", l.err)
}

// takeLive takes what was read of the live objects.
func (e *engine) takeLive(read liveData, err error, now time.Time) {
	if err == nil {
		e.losses.read, e.losses.sliceless = true, read.slices == 0
		read.Endpoints = e.refusals.filterAll(read.Endpoints)
		differ := e.hearEndpoints(e.reportsOf(read), now)
		merged := mergeLive(e.live, read, e.losses.guard.keepsIn)
		merged.Fallback = e.fallback
		if differ && e.liveRead {
			e.propagation.came([]time.Time{now})
		}
		was := e.liveRead
		e.live, e.liveRead = merged, true
		if e.bindings.setLive(merged.Live, now) && was {
			e.propagation.begin(propagationSecrets, []time.Time{now})
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

// fleetRead is the end of a read of the fleet's file.
type fleetRead struct {
	fleet fleet.Fleet
	err   error
}

func (f fleetRead) apply(e *engine, now time.Time) { e.takeFleet(f.fleet, f.err, now) }

func (f fleetRead) String() string {
	return describe("fleet read", "fleet", f.fleet.Name, "instances", len(f.fleet.Instances), "err", f.err)
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
	return describe("pods found", "pods", len(p.found), "err", p.err)
}

// clusterChanged is what changed in the cluster since the last time.
type clusterChanged struct{ change cluster.Change }

func (c clusterChanged) apply(e *engine, now time.Time) { e.takeCluster(c.change, now) }

func (c clusterChanged) String() string {
	return describe("cluster changed", "services", len(c.change.Endpoints), "secrets", len(c.change.Secrets), "status", c.change.Status != nil)
}

// snapshotRead is the end of a read of a snapshot, or of keeping it on disk once more.
type snapshotRead struct {
	id       snapshots.ID
	snapshot snapshots.Snapshot
	err      error
}

func (s snapshotRead) apply(e *engine, now time.Time) {
	e.snapshotCache.take(s.id, s.snapshot, s.err, now)
}

func (s snapshotRead) String() string {
	return describe("snapshot read", "snapshot", s.id, "err", s.err)
}

// certificatesOpened is the end of opening the certificates that a snapshot carries, which
// are found by version.
type certificatesOpened struct {
	id    snapshots.ID
	found map[string][]byte
	err   error
}

func (c certificatesOpened) apply(e *engine, now time.Time) {
	e.decryptions.take(c.id, c.err, now)
	e.bindings.addVersions(c.found, now)
}

func (c certificatesOpened) String() string {
	return describe("certificates opened", "snapshot", c.id, "certificates", len(c.found), "err", c.err)
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
	return describe("rejection written", "snapshot", r.id, "err", r.err)
}
