package pusher

import (
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/hapsnap/hapsnap/pusher/cluster"
	"github.com/hapsnap/hapsnap/snapshots"
)

// want tells the cluster what the snapshots in use need of it.
func (e *engine) want() {
	if e.bindings.from != fromCluster {
		return
	}
	var all cluster.Wanted
	for _, id := range slices.SortedFunc(maps.Keys(e.bindings.prepared), snapshots.ID.Compare) {
		wants := e.bindings.prepared[id].wants
		all.Namespaces = append(all.Namespaces, wants.Namespaces...)
		all.Secrets = append(all.Secrets, wants.Secrets...)
	}
	e.Cluster.Want(all)
	e.bindings.learn(e.waiting.status) // it may be known already, for another snapshot
}

// takeCluster takes what changed in the cluster.
func (e *engine) takeCluster(change cluster.Change, now time.Time) {
	change.Endpoints = e.refusals.filter(change.Endpoints)
	if s := change.Status; s != nil {
		e.losses.read, e.losses.sliceless = len(s.Waits) == 0 && len(e.bindings.prepared) > 0, s.Slices == 0
	}
	if reports := e.reportsOfChange(change); len(reports) > 0 {
		e.hearEndpoints(reports, now)
	}
	e.losses.doubtSecrets(&change, now)
	if len(change.Endpoints) > 0 {
		e.propagation.came(change.Since)
	}
	if len(change.Secrets) > 0 {
		e.takeSecrets(change, now)
	}
	if change.Status != nil {
		e.bindings.learn(*change.Status)
		e.waiting.take(*change.Status, now)
		e.trouble("cluster", change.Status.Trouble, now)
	}
}

// takeSecrets takes Secrets that changed. The last usable certificate of one that is
// broken now stays in use.
func (e *engine) takeSecrets(change cluster.Change, now time.Time) {
	for name, s := range change.Secrets {
		if s == nil {
			delete(e.secrets, name)
			continue
		}
		e.secrets[name] = e.secrets[name].follow(*s)
	}
	endpoints := e.live.Endpoints
	e.live = e.secrets.live()
	e.live.Endpoints, e.live.Fallback = endpoints, e.fallback
	if e.bindings.setLive(e.live.Live, now) {
		e.propagation.begin(propagationSecrets, change.Since)
	}
	e.objects.broken = e.live.faulty
	e.troubleWithObjects(now)
}

// learn takes note of what is known of the cluster.
func (b *bindings) learn(s cluster.Status) {
	was := b.read
	b.read = s.Read
	for id, p := range b.prepared {
		known := s.Knows(p.wants)
		b.stale = b.stale || p.known != known || was == nil ||
			slices.ContainsFunc(p.wants.Namespaces, func(n string) bool { return was(n) != s.Read(n) })
		p.known, p.lacks = known, s.Denied(p.wants)
		b.prepared[id] = p
	}
}

// waiting is what the cluster did not say yet, and since when that is waited for.
type waiting struct {
	status cluster.Status
	since  time.Time
}

func (w *waiting) take(s cluster.Status, now time.Time) {
	switch {
	case len(s.Waits) == 0:
		w.since = time.Time{}
	case w.since.IsZero():
		w.since = now
	}
	w.status = s
}

// shortWait is how long the cluster may take to say what it has, each time that
// something new is asked for, before somebody is told.
const shortWait = 2 * time.Second

// troubleWithCluster tells what is waited for, if it takes long.
func (e *engine) troubleWithCluster(now time.Time) {
	if e.bindings.from != fromCluster {
		return
	}
	var err error
	// What may not be read is told as what is needed, unless nothing can be done without it.
	onlyRefused := len(e.waiting.status.Refused) == len(e.waiting.status.Waits) && !e.unknown(e.state.Rollout.Good)
	if w := e.waiting; !w.since.IsZero() && now.Sub(w.since) >= shortWait && !onlyRefused {
		err = fmt.Errorf("snapshots that need it wait for %s", cluster.Some(w.status.Waits))
	}
	e.trouble("live", err, now)
}
