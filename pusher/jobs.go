package pusher

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"

	"go.opentelemetry.io/otel/trace"

	"github.com/hapsnap/hapsnap/pusher/dataplane"
	"github.com/hapsnap/hapsnap/pusher/push"
	"github.com/hapsnap/hapsnap/pusher/rollout"
	"github.com/hapsnap/hapsnap/snapshots"
	"github.com/hapsnap/hapsnap/snapshots/bind"
	"github.com/hapsnap/hapsnap/snapshots/channel"
)

// hearing returns what to do with each answer of an instance.
func (e *engine) hearing(ctx context.Context, i *instance) func(dataplane.RuntimeInfo, error, time.Time) {
	return func(info dataplane.RuntimeInfo, err error, asked time.Time) {
		e.send(ctx, func(now time.Time) {
			if isRefused(err) && !isRefused(i.err) {
				e.logger(i.Name).Error("instance refused, nothing is pushed to it", "err", err)
			}
			i.hear(info, err, asked, now)
			e.lookFirst(ctx, i)
		})
	}
}

// jobTime bounds a job, so that an instance that hangs is free again some day: a
// push looks, uploads, reloads, and may have to do so again.
func (e *engine) jobTime() time.Duration { return 3*e.ReloadTimeout + 30*time.Second }

// bind returns a function that binds a snapshot for an instance to what is known
// now. It is slow for a large snapshot, and is called by the job.
func (e *engine) bind(id snapshots.ID, i *instance) func() (bind.Bound, error) {
	snapshot, binding, ok := e.bindings.binding(id, i.Layout)
	if ok {
		binder := &e.bindings.binder
		return func() (bind.Bound, error) { return binder.Bind(snapshot, binding) }
	}
	return func() (bind.Bound, error) {
		return bind.Bound{}, fmt.Errorf("snapshot %s is not at hand", id)
	}
}

// beginPushes begins the pushes of a step.
func (e *engine) beginPushes(ctx context.Context, pushes []rollout.Push) {
	for _, p := range pushes {
		i := e.instances[p.Instance]
		e.Log.Info("push begins", "instance", p.Instance, "snapshot", p.Snapshot, "why", string(p.Purpose))
		want, running := e.bind(p.Snapshot, i), e.bind(i.snapshot(), i)
		i.begin(workPush)
		if i.snapshot() != p.Snapshot {
			want = whole(want)
		}
		ctx, span := e.traces.push(ctx, p, e.traceparent(p.Snapshot))
		have := i.running
		e.startOn(ctx, i, func(ctx context.Context) { e.push(ctx, i, p, want, running, have, span) })
	}
}

// whole binds what can be given to an instance that does not have it yet.
func whole(join func() (bind.Bound, error)) func() (bind.Bound, error) {
	return func() (bind.Bound, error) {
		bound, err := join()
		if err == nil && len(bound.Absent) > 0 {
			err = fmt.Errorf("push %s: %w: %s", bound.ID, errAbsent, bound.Absent[0])
		}
		return bound, err
	}
}

// push brings one instance to run a snapshot, and reports how that ended.
func (e *engine) push(ctx context.Context, i *instance, p rollout.Push, join, joinRunning func() (bind.Bound, error), have push.Running, span trace.Span) {
	ctx, cancel := context.WithTimeout(ctx, e.jobTime())
	defer cancel()
	began := time.Now()
	want, err := join()
	var done push.Done
	var change Change
	if err == nil {
		var good *bind.Bound
		running, goodErr := joinRunning()
		if goodErr == nil {
			good = &running
		}
		switch {
		case !p.Light:
			done, err = i.target.Push(ctx, want, good, i.onDisk)
		case goodErr != nil:
			err = fmt.Errorf("%w: %w", push.ErrNeedsReload, goodErr) // which has its budget
		default:
			done, err = i.target.Light(ctx, want, running, have, i.onDisk)
		}
		err = withoutSecrets(err, want, running)
		change = changeOf(good, want, done.Reloaded)
	}
	endJob(span, done.Reloaded, err)
	e.send(context.WithoutCancel(ctx), func(now time.Time) { e.pushed(i, p, want, change, done, err, now.Sub(began), now) })
}

// pushed takes the end of a push.
func (e *engine) pushed(i *instance, p rollout.Push, want bind.Bound, change Change, done push.Done, err error, took time.Duration, now time.Time) {
	r := rollout.Result{Instance: p.Instance, Snapshot: p.Snapshot, Outcome: outcome(err), PID: done.Info.PID, Reloaded: done.Reloaded}
	i.busy, i.ended = "", now
	switch current := e.instances[p.Instance]; {
	case current == nil || current == i:
	case current.UID != i.UID:
		return // it was a push to another pod, which is gone
	default:
		current.busy = ""
	}
	log := e.Log.With("instance", p.Instance, "snapshot", p.Snapshot, "why", string(p.Purpose), "took", took.Round(time.Millisecond)).With(change.logged()...)
	e.noteChange(p, change, done.Reloaded, err)
	e.metrics.pushed(r.Outcome, done.Reloaded, took)
	e.metrics.lost.Add(float64(done.Lost))
	e.noteCertificates(i, want)
	if p.Light && err != nil {
		e.failedLight(i, p, err)
	}
	if err != nil {
		r.Error = push.Gist(err)
		e.outranked(i, err, now)
		e.notLed(i, err)
		log.Warn("push failed", "outcome", string(r.Outcome), "err", err)
	} else {
		if done.Why != "" {
			log = log.With("for", done.Why)
		}
		log.Info("push done", "node", want.Node, "pid", done.Info.PID, "reloaded", done.Reloaded, "light", p.Light)
		i.asked, i.err = true, nil
		i.meet(done.Info, now)
		if done.Reloaded {
			i.forgetJobs()
			i.running = push.Running{
				Servers: push.Loaded(want.Servers), Persisted: true, Written: want.Servers, Certificates: push.Hashes(want), Maps: want.Entries,
				Info: done.Info, ByHand: i.running.ByHand,
			}
		}
		if p.Light {
			e.noteHands(i, done.Running.ByHand)
			i.running = done.Running
		}
		i.running.Disk, i.inspectAfter = done.Disk, now.Add(e.InspectInterval)
	}
	e.results = append(e.results, r)
}

func outcome(err error) rollout.Outcome {
	switch {
	case err == nil:
		return rollout.Applied
	case errors.Is(err, push.ErrInstance), errors.Is(err, push.ErrDirectory):
		return rollout.Faulty
	case errors.Is(err, push.ErrRefused):
		return rollout.Refused
	}
	return rollout.Trouble
}

// stands classifies what an instance needs; now is only looked at for the kinds
// of work that have to wait.
func (e *engine) stands(i *instance, now time.Time) work { return classify(e.standing(i), now) }

func (e *engine) standing(i *instance) standing {
	n, ok := e.bindings.node(i.snapshot(), i.Layout)
	s := standing{
		Busy: i.busy != "" || e.unclaimed(i), Reachable: i.reachable() && !i.ledByOther(), Bound: ok && n.err == nil,
		SameNode: bind.SameNode(n.node, i.info.Node), NotBefore: i.jobNotBefore,
		Persisted: i.running.Persisted, PersistAfter: i.persisted.Add(e.PersistInterval),
		Garbage: len(i.garbage) > 0, CollectAfter: i.collectAfter, Overdue: e.overdue(i), InspectAfter: i.inspectAfter,
	}
	if s.Bound && s.SameNode {
		servers := e.bindings.prepared[i.snapshot()].servers
		s.SameServers = i.hasServers(servers)
		s.Unserved = i.leavesUnserved(servers)
		s.UrgentAfter = i.persisted.Add(i.persistTook)
		s.Deferred, s.DeferredUntil = i.running.Deferred, i.persisted.Add(deferral(i.persistTook, e.PersistInterval))
		s.Leftover, s.TidyAfter = len(i.running.Dynamic) > 0 && len(i.running.Leftovers()) > 0, i.tidied.Add(tidyInterval)
		s.Updated = i.lastWork == workUpdate
		s.SameMaps = i.running.Maps == n.entries
		s.SameCertificates = n.certificates.In(i.running.Certificates)
	}
	return s
}

// beginWork begins what the instances need apart from the rollout.
func (e *engine) beginWork(ctx context.Context, now time.Time) {
	for _, name := range e.names() {
		i := e.instances[name]
		bind := e.bind(i.snapshot(), i)
		switch w := e.stands(i, now); w {
		case workUpdate:
			i.begin(w)
			want, have := e.wanted(i, bind), i.running
			ctx, span := e.traces.update(ctx, name, i.snapshot(), e.traceparent(i.snapshot()))
			e.startOn(ctx, i, func(ctx context.Context) { e.update(ctx, i, want, have, span) })
		case workPersist:
			i.begin(w)
			have := i.running
			e.startOn(ctx, i, func(ctx context.Context) { e.persist(ctx, i, bind, have) })
		case workTidy:
			i.begin(w)
			have := i.running
			e.startOn(ctx, i, func(ctx context.Context) { e.tidy(ctx, i, have) })
		case workCollect:
			i.begin(w)
			garbage := i.garbage
			i.garbage, i.collected = nil, now
			e.startOn(ctx, i, func(ctx context.Context) { e.collect(ctx, i, garbage) })
		case workInspect:
			i.begin(w)
			e.inspect(ctx, i, bind)
		case workNothing, workReload:
		}
	}
}

// wanted returns what the worker should have of the snapshot that it runs.
func (e *engine) wanted(i *instance, bind func() (bind.Bound, error)) push.Wanted {
	n, _ := e.bindings.node(i.snapshot(), i.Layout)
	return push.Wanted{Node: n.node, Servers: e.bindings.prepared[i.snapshot()].servers, Dynamic: e.bindings.prepared[i.snapshot()].dynamic, Certificates: n.certificates, Entries: n.entries, Bind: bind}
}

// update changes servers and certificates in the running worker.
func (e *engine) update(ctx context.Context, i *instance, want push.Wanted, have push.Running, span trace.Span) {
	ctx, cancel := context.WithTimeout(ctx, e.jobTime())
	defer cancel()
	began, known := time.Now(), have.Servers != nil
	var bound bind.Bound // if it was needed
	join := want.Bind
	want.Bind = func() (_ bind.Bound, err error) {
		bound, err = join()
		return bound, err
	}
	have, err := i.target.Update(ctx, want, have)
	err = withoutSecrets(err, bound)
	endJob(span, have.Reloaded, err)
	e.send(context.WithoutCancel(ctx), func(now time.Time) {
		e.ended(i, workUpdate, err, now)
		if have.Info.PID != 0 {
			i.meet(have.Info, began) // rather too early, which is on the safe side
		}
		e.noteHands(i, have.ByHand)
		e.metrics.lost.Add(float64(have.Lost))
		if err == nil {
			e.tally.changed(i.Name)
		}
		i.running = have
		if have.Reloaded {
			e.reloads[i.Name] = have.Info.PID
			i.running.Reloaded = false
		}
		if err == nil && known {
			e.logger(i.Name).Debug("servers and certificates changed at run time", "node", want.Node)
		}
	})
}

// persist writes to disk what the worker is to have, and has the worker brought to it.
func (e *engine) persist(ctx context.Context, i *instance, join func() (bind.Bound, error), have push.Running) {
	ctx, cancel := context.WithTimeout(ctx, e.jobTime())
	defer cancel()
	began := time.Now()
	want, err := join()
	if err == nil {
		have, err = i.target.Settle(ctx, want, have)
		if errors.Is(err, dataplane.ErrValidation) { // a file that it names may have been taken away
			if _, mendErr := i.target.Mend(ctx, want, i.onDisk); mendErr == nil {
				have, err = i.target.Settle(ctx, want, have)
			}
		}
		err = withoutSecrets(err, want)
	}
	took := time.Since(began)
	e.send(context.WithoutCancel(ctx), func(now time.Time) {
		e.ended(i, workPersist, err, now)
		i.persisted, i.persistTook = now, took
		e.noteHands(i, have.ByHand)
		i.running = have
	})
}

// tidy deletes dynamic servers that the worker no longer needs.
func (e *engine) tidy(ctx context.Context, i *instance, have push.Running) {
	ctx, cancel := context.WithTimeout(ctx, e.jobTime())
	defer cancel()
	have, err := i.target.Tidy(ctx, have)
	e.send(context.WithoutCancel(ctx), func(now time.Time) {
		e.ended(i, workTidy, err, now)
		i.tidied, i.running = now, have
	})
}

// ended notes the end of a job.
func (e *engine) ended(i *instance, w work, err error, now time.Time) {
	if errors.Is(err, context.Canceled) {
		err = nil // the process is about to end
	}
	i.end(err, e.PollInterval, now)
	if current := e.instances[i.Name]; current != nil && current != i && current.UID == i.UID {
		current.busy = ""
	}
	e.metrics.worked(w, err)
	if err != nil {
		e.logger(i.Name).Warn("instance not brought up to date", "work", string(w), "err", err)
		e.outranked(i, err, now)
		e.notLed(i, err)
	}
}

// reject writes the failures into the channel that it does not show yet.
func (e *engine) reject(ctx context.Context, now time.Time) {
	named := wishes(e.view.Channel, now)
	failures := slices.DeleteFunc(e.state.Rollout.Unrecorded(), func(f rollout.Failure) bool { return f.Withdrawn(named) })
	if len(failures) == 0 || e.rejecting || now.Before(e.rejectAt) || !e.viewRead {
		return
	}
	f := failures[0]
	snapshot, ok := e.library.have[f.Snapshot]
	digest := snapshot.Manifest.Spec.Digest
	e.rejecting = true
	fleetName := e.view.Fleet
	e.start(func() {
		err := rejectInChannel(ctx, e.Store, f, fleetName, digest, ok, now)
		e.send(ctx, func(now time.Time) {
			e.rejecting, e.rejectAt = false, now.Add(5*time.Second)
			e.trouble("channel", err, now)
		})
	})
}

// rejectInChannel notes a failure of a fleet in the channel, unless people named the snapshot anew
// meanwhile. The digest is that of the snapshot, read again where it is no longer at hand.
func rejectInChannel(ctx context.Context, store Store, f rollout.Failure, fleetName string, digest snapshots.Digest, known bool, now time.Time) error {
	ctx, cancel := context.WithTimeout(ctx, viewTimeout)
	defer cancel()
	if !known {
		s, err := store.Get(ctx, f.Snapshot)
		if err != nil {
			return fmt.Errorf("reject %s: %w", f.Snapshot, err)
		}
		digest = s.Manifest.Spec.Digest
	}
	r := rejectionOf(f, digest, fleetName)
	err := store.UpdateChannel(ctx, fmt.Sprintf("reject %s: %s", f.Snapshot, firstLine(f.Reason, 80)), now, func(c *channel.Channel) error {
		if !f.Withdrawn(wishes(*c, now)) {
			*c = c.Reject(r)
		}
		return nil
	})
	if err != nil {
		return fmt.Errorf("reject %s: %w", f.Snapshot, err)
	}
	return nil
}

func sameJSON(a, b any) bool {
	x, errX := json.Marshal(a)
	y, errY := json.Marshal(b)
	return errX == nil && errY == nil && bytes.Equal(x, y)
}
