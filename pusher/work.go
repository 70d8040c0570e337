package pusher

import (
	"bytes"
	"encoding/json"
	"errors"
	"reflect"
	"slices"
	"time"

	"github.com/hapsnap/hapsnap/pusher/instance"
	"github.com/hapsnap/hapsnap/pusher/observe"
	"github.com/hapsnap/hapsnap/pusher/push"
	"github.com/hapsnap/hapsnap/pusher/rollout"
	"github.com/hapsnap/hapsnap/snapshots"
	"github.com/hapsnap/hapsnap/snapshots/bind"
)

// beginPush begins a push.
func (e *engine) beginPush(p rollout.Push, now time.Time) {
	i := e.instances[p.Instance]
	e.tell(observe.Info("push begins", "instance", p.Instance, "snapshot", p.Snapshot, "why", string(p.Purpose)), now)
	i.begin(workPush)
	e.do(instance.Push{
		Ref: i.ref(), Push: p, Want: e.bindings.Unbound(p.Snapshot, i.Layout), Whole: i.snapshot() != p.Snapshot,
		Running: e.bindings.Unbound(i.snapshot(), i.Layout), Have: i.running, Traceparent: e.traceparent(p.Snapshot),
	})
}

// stands classifies what an instance needs; now is only looked at for the kinds
// of work that have to wait.
func (e *engine) stands(i *instanceState, now time.Time) work { return classify(e.needsOf(i), now) }

func (e *engine) needsOf(i *instanceState) instanceNeeds {
	n, ok := e.bindings.Node(i.snapshot(), i.Layout)
	s := instanceNeeds{
		Busy: i.busy != "" || e.unclaimed(i), Reachable: i.reachable() && !i.ledByOther(), Bound: ok && n.Err == nil,
		SameNode: n.Name != "" && n.Name == i.info.Node || bind.SameNode(n.Name, i.info.Node), NotBefore: i.jobNotBefore,
		Persisted: i.running.Persisted, PersistAfter: i.persisted.Add(e.PersistInterval),
		Garbage: len(i.garbage) > 0, CollectAfter: i.collectAfter, Overdue: e.overdue(i), InspectAfter: i.inspectAfter,
	}
	if s.Bound && s.SameNode {
		p, _ := e.bindings.Of(i.snapshot())
		servers := p.Servers
		s.SameServers = i.hasServers(servers)
		s.Unserved = i.leavesUnserved(servers)
		s.UrgentAfter = i.persisted.Add(i.persistTook)
		s.Deferred, s.DeferredUntil = i.running.Deferred, i.persisted.Add(deferral(i.persistTook, e.PersistInterval))
		s.Leftover, s.TidyAfter = len(i.running.Dynamic) > 0 && len(i.running.Leftovers()) > 0, i.tidied.Add(tidyInterval)
		s.Updated = i.lastWork == workUpdate
		s.SameMaps = i.running.Maps == n.Entries
		s.SameCertificates = n.Certificates.In(i.running.Certificates)
	}
	return s
}

// beginWork begins what the instances need apart from the rollout.
func (e *engine) beginWork(now time.Time) {
	for _, name := range e.names() {
		i := e.instances[name]
		w := e.stands(i, now)
		if w == workNothing || w == workReload || e.saves.reservedFor(i, now) {
			continue
		}
		i.begin(w)
		on, want := i.ref(), e.bindings.Unbound(i.snapshot(), i.Layout)
		switch w {
		case workUpdate:
			e.do(instance.Update{Ref: on, Want: e.wanted(i), Whole: want, Have: i.running, Running: i.snapshot(), Traceparent: e.traceparent(i.snapshot())})
		case workPersist:
			e.do(instance.Persist{Ref: on, Want: want, Have: i.running})
		case workTidy:
			e.do(instance.Tidy{Ref: on, Have: i.running})
		case workCollect:
			garbage := i.garbage
			i.garbage, i.collected = nil, now
			e.do(instance.Collect{Ref: on, Garbage: garbage})
		case workInspect:
			e.do(instance.Inspect{Ref: on, Want: want, Have: i.running, Round: i.inspections})
		case workNothing, workReload:
		}
	}
}

// wanted returns what the worker should have of the snapshot that it runs.
func (e *engine) wanted(i *instanceState) push.Wanted {
	n, _ := e.bindings.Node(i.snapshot(), i.Layout)
	p, _ := e.bindings.Of(i.snapshot())
	return push.Wanted{Node: n.Name, Servers: p.Servers, Dynamic: p.Dynamic, Certificates: n.Certificates, Entries: n.Entries}
}

// reject writes the failures into the channel that it does not show yet.
func (e *engine) reject(now time.Time) {
	named := wishes(e.view.Channel, now)
	failures := slices.DeleteFunc(e.state.Rollout.Unrecorded(), func(f rollout.Failure) bool { return f.Withdrawn(named) })
	if len(failures) == 0 || e.rejecting || now.Before(e.rejectAt) || !e.viewRead {
		return
	}
	f := failures[0]
	snapshot, _ := e.snapshotCache.Get(f.Snapshot)
	e.rejecting = true
	e.begin(WriteRejection{f, e.view.Fleet, snapshot.Manifest.Spec.Digest, now})
}

// sameJSON reports whether two values are stored alike. Values that are the same, as they
// nearly always are, cost little.
func sameJSON(a, b any) bool {
	if reflect.DeepEqual(a, b) {
		return true
	}
	x, errX := json.Marshal(a)
	y, errY := json.Marshal(b)
	return errX == nil && errY == nil && bytes.Equal(x, y)
}

// knowRunning reports whether the snapshots are at hand that the instances run, as far
// as the store has them. What it takes to bring them to another cannot be told before.
func (e *engine) knowRunning() bool {
	for _, i := range e.instances {
		id := i.snapshot()
		_, has := e.snapshotCache.Get(id)
		if i.reachable() && !has && !e.snapshotCache.Unreadable(id) && slices.Contains(e.view.IDs, id) {
			return false
		}
	}
	return true
}

// runtimeUpdates returns the snapshots that an instance can be brought to without a reload.
func (e *engine) runtimeUpdates(i *instanceState) []snapshots.ID {
	var out []snapshots.ID
	from := i.snapshot()
	if i.foreign() != "" {
		return nil // it has something else than what is changed
	}
	for _, id := range i.matters {
		if id.Short != from.Short && id.Short != i.needsReload && e.bindings.RuntimeUpdate(i.info.Node, from, id, i.Layout) {
			out = append(out, id)
		}
	}
	return out
}

// runtimeUpdateFailed takes note of a worker that was not changed, or in part. The file on disk
// may be ahead of it. After another failure it is to be reloaded.
func (e *engine) runtimeUpdateFailed(i *instanceState, p rollout.Push, err error) {
	if errors.Is(err, push.ErrNeedsReload) || e.state.Rollout.Instances[p.Instance].Failures > 0 {
		i.needsReload = p.Snapshot.Short
	}
	i.running = i.running.Another()
	i.running.Disk = push.Digest{}
}

// work is what an instance needs apart from the rollout.
type work string

// The kinds of work. A reload is for the rollout to begin.
const (
	workNothing work = "nothing"
	workReload  work = "reload"
	workUpdate  work = "update"
	workPersist work = "persist"
	workCollect work = "collect"
	workInspect work = "inspect"
	workTidy    work = "tidy"
)

// instanceNeeds is what an instance has and lacks of the snapshot that it runs, joined with
// today's live data.
type instanceNeeds struct {
	Busy, Reachable bool
	// Bound is set when the snapshot that it runs is at hand and could be bound.
	Bound bool
	// SameNode is set when the worker runs what was bound, SameServers, SameMaps and
	// SameCertificates when it is known to have them.
	SameNode, SameServers, SameMaps, SameCertificates bool
	// Persisted is set when the file on disk has the servers too.
	Persisted    bool
	PersistAfter time.Time
	// Unserved is set when a HAProxy that starts from the file on disk would serve nothing
	// in some backend that has endpoints, see [push.Unserved]. UrgentAfter paces what is
	// done about it.
	Unserved    bool
	UrgentAfter time.Time
	// Deferred is set while dynamic servers make up for addresses that slots get with the
	// next post, which is due at DeferredUntil. Leftover is set while there are dynamic
	// servers that nothing needs any more.
	Deferred      bool
	DeferredUntil time.Time
	Leftover      bool
	TidyAfter     time.Time
	// Updated is set when the last job was an update.
	Updated   bool
	NotBefore time.Time
	// Garbage is set when there are files to be removed, and Overdue when they waited so
	// long that this comes before all that is done without a reload.
	Garbage, Overdue bool
	CollectAfter     time.Time
	InspectAfter     time.Time
}

// classify decides what an instance needs: what must change by a reload, by a
// change at run time, on disk only, or not at all.
func classify(s instanceNeeds, now time.Time) work {
	switch {
	case !s.Reachable || !s.Bound:
		return workNothing
	case !s.SameNode:
		return workReload
	case s.Busy || now.Before(s.NotBefore):
		return workNothing
	case s.Unserved && s.urgent() && !now.Before(s.UrgentAfter), s.Deferred && s.urgent() && !now.Before(s.DeferredUntil):
		return workPersist
	case s.Overdue && !now.Before(s.CollectAfter):
		return workCollect
	case !s.SameServers || !s.SameMaps || !s.SameCertificates:
		return workUpdate
	case !s.Persisted && !now.Before(s.PersistAfter):
		return workPersist
	case s.Leftover && !now.Before(s.TidyAfter):
		return workTidy
	case s.Persisted && s.Garbage && !now.Before(s.CollectAfter):
		return workCollect
	case s.Persisted && !now.Before(s.InspectAfter):
		return workInspect
	default:
		return workNothing
	}
}

// urgent reports whether the file comes before the worker. Writing it gives the worker its
// servers too, but takes as long as the configuration is large, so the worker is changed
// first, once: updates that never end do not keep the file from being written.
func (s instanceNeeds) urgent() bool { return s.SameServers || s.Updated }

// inSync reports whether nothing is to be changed in the worker, or on disk by now,
// whatever the instance is busy with. A file that may wait for a while does not count; one
// from which a backend would serve nothing does.
func inSync(s instanceNeeds) bool {
	if s.Unserved {
		return false
	}
	s.Busy, s.NotBefore, s.Garbage, s.Overdue = false, time.Time{}, false, false
	return classify(s, time.Time{}) == workNothing
}

// tidyInterval is how long dynamic servers that still had connections are left alone.
const tidyInterval = 5 * time.Second

// deferral returns how long after a post the next one waits that gives slots the addresses
// which dynamic servers serve meanwhile: posts of this kind take a fifth of the time, and
// an endpoint is without health checks for no longer than the file on disk may be behind.
func deferral(took, persistInterval time.Duration) time.Duration {
	const least = 500 * time.Millisecond
	return min(max(least, 4*took), persistInterval)
}

// The pace at which instances are asked for statistics, which are long with many
// backends: a few times in a soak time, and seldom while nothing is rolled out.
const (
	samplesPerSoak = 5
	slowestSample  = 10 * time.Second
	idleSample     = time.Minute
)

// samplePace returns how often to ask for statistics; never is 0.
func samplePace(p rollout.Policy, poll time.Duration, busy bool) time.Duration {
	switch {
	case p.Gate.Off || p.Soak <= 0:
		return 0
	case busy:
		return max(poll, min(p.Soak/samplesPerSoak, slowestSample))
	}
	return max(poll, min(2*p.Soak, idleSample))
}

// samples are what the workers of an instance counted, oldest first, all of one worker.
type samples []rollout.Sample

// add returns the samples with one more, without those of another worker and those
// that are too old.
func (s samples) add(n rollout.Sample) samples {
	s = slices.DeleteFunc(slices.Clone(s), func(o rollout.Sample) bool {
		return o.PID != n.PID || o.Requests > n.Requests || n.At.Sub(o.At) > instance.Past
	})
	return append(s, n)
}

// last returns the newest, with the traffic before it: since the oldest, or since the
// worker started, if that was not long ago or nothing else is known.
func (s samples) last(started time.Time) rollout.Sample {
	if len(s) == 0 {
		return rollout.Sample{}
	}
	first, last := s[0], s[len(s)-1]
	last.Age = max(0, last.At.Sub(started))
	last.Past = rollout.Rate{Counters: last.Minus(first.Counters), For: last.At.Sub(first.At)}
	if age := last.At.Sub(started); age > 0 && (age <= instance.Past || len(s) == 1) {
		last.Past = rollout.Rate{Counters: last.Counters, For: age}
	}
	return last
}

// beginSampling asks the instances for statistics whose turn it is.
func (e *engine) beginSampling(now time.Time) {
	pace := samplePace(e.policy, e.PollInterval, e.state.Rollout.Rollout != nil)
	if pace == 0 {
		return
	}
	for _, name := range e.names() {
		i := e.instances[name]
		if i.sampling || !i.reachable() || i.busy == workPush || now.Sub(i.sampled) < pace {
			continue
		}
		i.sampling, i.sampled = true, now
		e.do(instance.Sample{Ref: i.ref(), Ignore: e.policy.Gate.Ignore, At: now})
	}
}
