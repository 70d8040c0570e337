package pusher

import (
	"context"
	"errors"
	"slices"
	"strings"
	"time"

	"github.com/hapsnap/hapsnap/pusher/binding"
	"github.com/hapsnap/hapsnap/pusher/dataplane"
	"github.com/hapsnap/hapsnap/pusher/instance"
	"github.com/hapsnap/hapsnap/pusher/observe"
	"github.com/hapsnap/hapsnap/pusher/preflight"
	"github.com/hapsnap/hapsnap/pusher/push"
	"github.com/hapsnap/hapsnap/pusher/rollout"
	"github.com/hapsnap/hapsnap/snapshots"
)

// apply takes what is known of the instance, and how the effect ended.
func (v OfInstance) apply(e *engine, now time.Time) {
	about := v.From()
	i := e.instanceOf(about.Ref)
	i.takeKnown(about.Known)
	switch ev := v.Event.(type) {
	case instance.JoinFailed:
		e.trouble("fleet", ev.Err, now)
	case instance.Renewed:
		if ev.Err != nil {
			e.trouble("fleet", ev.Err, now)
		}
	case instance.Probed:
		e.probed(i, ev, now)
	case instance.Checked:
		e.checked(i, ev, now)
	case instance.ClaimEnded:
		e.claimEnded(i, ev, now)
	case instance.PushEnded:
		e.pushEnded(i, ev, now)
	case instance.UpdateEnded:
		e.updateEnded(i, ev, now)
	case instance.PersistEnded:
		e.persistEnded(i, ev, now)
	case instance.TidyEnded:
		e.ended(i, workTidy, ev.Err, now)
		i.tidied, i.running = now, ev.Have
	case instance.CollectEnded:
		e.collectEnded(i, ev, now)
	case instance.InspectEnded:
		e.inspectEnded(i, ev, now)
	case instance.MendEnded:
		e.mendEnded(i, ev, now)
	case instance.Sampled:
		e.sampled(i, ev, now)
	}
}

// instanceOf returns the instance that an event is about. Where that left, or joined anew since,
// it is one that nobody knows: what is written to it is gone.
func (e *engine) instanceOf(r instance.Ref) *instanceState {
	if i := e.instances[r.Name]; i != nil && i.ref() == r {
		return i
	}
	i := &instanceState{joined: r.Joined}
	i.Name, i.UID = r.Name, r.UID
	return i
}

// probed takes what an instance answered, or why it did not.
func (e *engine) probed(i *instanceState, ev instance.Probed, now time.Time) {
	if isRefused(ev.Err) && !isRefused(i.err) {
		e.tell(observe.Error("instance refused, nothing is pushed to it", "instance", i.Name, "err", ev.Err), now)
	}
	i.takeProbe(ev.Info, ev.Err, ev.Asked, now)
	e.checkOnce(i)
}

// isRefused reports whether an instance is refused for what it is.
func isRefused(err error) bool {
	_, refused := errors.AsType[dataplane.UnsupportedError](err)
	return refused
}

// checked keeps what is wrong with an instance, and logs what is new. Warnings are for the verb
// check: what works may stay as it is.
func (e *engine) checked(i *instanceState, ev instance.Checked, now time.Time) {
	if ev.Err != nil {
		return // that it is out of reach is seen elsewhere
	}
	found := slices.DeleteFunc(ev.Found, func(f preflight.Finding) bool { return f.Warning })
	for _, f := range found {
		if !slices.Contains(i.findings, f) {
			e.tell(observe.Warn("instance is not set up well", "instance", i.Name, "check", f.Check, "err", f.Message, "hint", f.Hint), now)
		}
	}
	i.findings = found
}

// free notes that no job is under way on an instance, also where another one has its place
// that has inherited the job.
func (e *engine) free(i *instanceState, now time.Time) {
	i.busy, i.ended = "", now
	if current := e.instances[i.Name]; current != nil && current != i && current.UID == i.UID {
		current.busy = ""
	}
}

// ended notes the end of a job, apart from a push, whose end the rollout notes.
func (e *engine) ended(i *instanceState, w work, err error, now time.Time) {
	if errors.Is(err, context.Canceled) {
		err = nil // the process is about to end
	}
	i.end(err, e.PollInterval, now)
	e.free(i, now)
	e.tell(observe.Worked{Kind: string(w), Failed: err != nil}, now)
	if err != nil {
		e.tell(observe.Warn("instance not brought up to date", "instance", i.Name, "work", string(w), "err", err), now)
		e.outranked(i, err)
		e.notLed(i, err)
	}
}

// claimEnded notes the claim. One that failed keeps nothing else from being done, unless another
// pusher leads the instance.
func (e *engine) claimEnded(i *instanceState, ev instance.ClaimEnded, now time.Time) {
	err := ev.Err
	e.free(i, now)
	if errors.Is(err, context.Canceled) {
		return // the process, or the term, is about to end
	}
	e.tell(observe.Worked{Kind: string(workClaim), Failed: err != nil}, now)
	if i.claimFailed {
		i.jobError, i.jobErrorAt, i.claimFailed = "", time.Time{}, false
	}
	e.dirty = true
	if err == nil {
		i.claimed = claim{true, ev.Term}
		return
	}
	i.claimAfter = now.Add(claimRetry)
	if !i.ledByOther() { // that is told once
		e.tell(observe.Warn("instance not claimed", "instance", i.Name, "term", ev.Term, "err", err), now)
	}
	if !e.outranked(i, err) {
		i.jobError, i.jobErrorAt, i.claimFailed = err.Error(), now, true
	}
	e.notLed(i, err)
}

// pushEnded takes the end of a push.
func (e *engine) pushEnded(i *instanceState, p instance.PushEnded, now time.Time) {
	done, err := p.Done, p.Err
	r := rollout.Result{Instance: p.Push.Instance, Snapshot: p.Push.Snapshot, Outcome: p.Outcome(), PID: done.Info.PID, Reloaded: done.Reloaded}
	e.free(i, now)
	if current := e.instances[p.Push.Instance]; current != nil && current.UID != i.UID {
		return // it was a push to another pod, which is gone
	}
	keys := append([]any{"instance", p.Push.Instance, "snapshot", p.Push.Snapshot, "why", string(p.Push.Purpose), "took", p.Took.Round(time.Millisecond)}, p.Change.Logged()...)
	e.noteChange(p.Push, p.Change, done.Reloaded, err)
	e.tell(observe.Pushed{Outcome: r.Outcome, Reloaded: done.Reloaded, Took: p.Took}, now)
	e.lost(done.Lost, now)
	e.noteCertificates(i, p.Want.ID, p.Written)
	if p.Push.AtRuntime && err != nil {
		e.runtimeUpdateFailed(i, p.Push, err)
	}
	if err != nil {
		r.Error = push.Gist(err)
		e.outranked(i, err)
		e.notLed(i, err)
		e.tell(observe.Warn("push failed", keys...).With("outcome", string(r.Outcome), "err", err), now)
	} else {
		if done.Why != "" {
			keys = append(keys, "for", done.Why)
		}
		e.tell(observe.Info("push done", keys...).With("node", p.Want.Node, "pid", done.Info.PID, "reloaded", done.Reloaded, "light", p.Push.AtRuntime), now)
		i.asked, i.err = true, nil
		i.takeInfo(done.Info, now)
		if done.Reloaded {
			i.forgetJobs()
			i.running = push.Running{
				Servers: push.Loaded(p.Want.Servers), Persisted: true, Written: p.Want.Servers, Certificates: p.Certificates, Maps: p.Want.Entries,
				Info: done.Info, ManualDrains: i.running.ManualDrains,
			}
		}
		if p.Push.AtRuntime {
			e.noteManualDrains(i, done.Running.ManualDrains, now)
			i.running = done.Running
		}
		i.running.Disk, i.inspectAfter = done.Disk, now.Add(e.InspectInterval)
	}
	e.results = append(e.results, r)
}

// updateEnded takes the end of a change of the running worker.
func (e *engine) updateEnded(i *instanceState, u instance.UpdateEnded, now time.Time) {
	have := u.Have
	e.ended(i, workUpdate, u.Err, now)
	if have.Info.PID != 0 {
		i.takeInfo(have.Info, u.Began) // rather too early, which is on the safe side
	}
	e.noteManualDrains(i, have.ManualDrains, now)
	e.lost(have.Lost, now)
	if u.Err == nil {
		e.tell(observe.InstanceUpdated{Instance: i.Name}, now)
	}
	i.running = have
	if have.Reloaded {
		e.reloads[i.Name] = have.Info.PID
		i.running.Reloaded = false
	}
	if u.Err == nil && u.Had.Servers != nil {
		e.tell(observe.Debug("servers and certificates changed at run time", "instance", i.Name, "node", u.Node), now)
	}
}

// persistEnded takes the end of writing servers to disk.
func (e *engine) persistEnded(i *instanceState, p instance.PersistEnded, now time.Time) {
	e.ended(i, workPersist, p.Err, now)
	i.persisted, i.persistTook = now, p.Took
	e.noteManualDrains(i, p.Have.ManualDrains, now)
	i.running = p.Have
}

// collectEnded notes which files are gone. A failure keeps an instance from nothing that it
// should have.
func (e *engine) collectEnded(i *instanceState, c instance.CollectEnded, now time.Time) {
	failed := c.Err
	if errors.Is(failed, context.Canceled) {
		failed = nil // the process is about to end
	}
	e.tell(observe.Worked{Kind: string(workCollect), Failed: failed != nil}, now)
	if current := e.instances[i.Name]; current != nil && current.UID != i.UID {
		return // it was another pod, which is gone
	}
	e.free(i, now)
	i.reviewed, i.garbageSince = review{}, time.Time{}
	if failed != nil || len(c.Removed) < len(c.Garbage) {
		i.collectAfter = now.Add(collectRetry)
	}
	if failed != nil {
		e.tell(observe.Warn("files not removed that nothing needs", "instance", i.Name, "files", len(c.Garbage)-len(c.Removed), "err", failed), now)
		e.outranked(i, failed)
	}
	if len(c.Removed) == 0 {
		return
	}
	e.state.Uploads[i.Name] = slices.DeleteFunc(slices.Clone(e.state.Uploads[i.Name]), func(u upload) bool {
		return slices.Contains(c.Removed, u.Stored)
	})
	e.dirty = true
	e.tell(observe.Info("files removed that nothing needs", "instance", i.Name, "files", len(c.Removed)), now)
}

// inspectEnded takes the end of an inspection.
func (e *engine) inspectEnded(i *instanceState, n instance.InspectEnded, now time.Time) {
	e.ended(i, workInspect, n.Err, now)
	i.inspectAfter = now.Add(e.InspectInterval)
	if n.Err == nil && i.info.PID == n.Inspect.Have.Info.PID {
		i.inspections++
		e.inspected(i, n.Found, n.Inspect.Want, now)
	}
}

// mendEnded takes the end of putting files back.
func (e *engine) mendEnded(i *instanceState, m instance.MendEnded, now time.Time) {
	e.ended(i, workMend, m.Err, now)
	i.running.Disk, i.running.Written, i.persisted = m.Disk, m.Servers, now
	if m.Err != nil {
		i.running.Written = nil
	}
}

// sampled takes the statistics of an instance.
func (e *engine) sampled(i *instanceState, s instance.Sampled, now time.Time) {
	i.sampling = false
	if s.Err != nil {
		e.tell(observe.Debug("statistics not had", "instance", i.Name, "err", s.Err), now)
		return
	}
	i.samples = i.samples.add(s.Sample)
}

// kept is what is remembered of an instance over restarts, apart from the rollout.
type kept struct {
	// Of is the UID of the pod that it is remembered of, "" without a pod.
	Of string `json:"of,omitempty"`
	// Alias is what its worker runs, where it was changed at run time.
	Alias push.Override `json:"alias,omitzero"`
	// Record is what its worker was started from, and whether this state's pusher wrote
	// its file.
	Record push.Remembered `json:"record,omitzero"`
	// ByHand are the servers that somebody else took out of traffic.
	ByHand []push.ManualDrain `json:"byHand,omitempty"`
	// Repairs are the last ones of files and servers, oldest first.
	Repairs []time.Time `json:"repairs,omitempty"`
	// Conflict is the one over files and servers that is going on.
	Conflict *observe.Conflict `json:"fight,omitempty"`
}

// judge decides, after an inspection, whether to repair what it found. See
// [rollout.Repairs], which has the rules.
func (k kept) judge(faults []push.Fault, now time.Time) (next kept, repair bool) {
	repairs := rollout.Repairs{At: k.Repairs}
	if k.Conflict != nil {
		repairs.Stopped = k.Conflict.Since
	}
	if len(faults) == 0 {
		repairs = repairs.Settled()
	} else if repairs, repair = repairs.Due(now); repair {
		repairs = repairs.Done(now.UTC().Truncate(time.Second))
	}
	k.Repairs, k.Conflict = repairs.At, nil
	if repairs.InConflict() {
		k.Conflict = &observe.Conflict{Since: repairs.Stopped.UTC().Truncate(time.Second), Faults: faults}
	}
	return k, repair
}

// workMend is the repair of what an inspection found on disk.
const workMend work = "mend"

// inspected takes what an inspection found, and has it repaired unless somebody else keeps
// undoing that.
func (e *engine) inspected(i *instanceState, found push.Inspection, want binding.Unbound, now time.Time) {
	e.noteManualDrains(i, found.Running.ManualDrains, now)
	before := i.kept
	var repair bool
	i.kept, repair = i.judge(found.Faults, now)
	e.tellDrift(i, before, found.Faults, repair, now)
	if len(found.Faults) == 0 || repair {
		i.running = found.Running
	}
	e.dirty = true
	if repair && slices.ContainsFunc(found.Faults, onDisk) {
		i.begin(workMend)
		e.do(instance.Mend{Ref: i.ref(), Want: want})
	}
}

// onDisk reports whether a fault is of a file; the others are of servers and of maps in
// the worker, which the next update sees to.
func onDisk(f push.Fault) bool {
	return !strings.HasPrefix(f.What, "server ") && !strings.HasPrefix(f.What, "map ")
}

// tellDrift tells what an inspection found.
func (e *engine) tellDrift(i *instanceState, before kept, faults []push.Fault, repair bool, now time.Time) {
	for _, f := range faults {
		if repair {
			e.tell(observe.Warn("drift is repaired", "instance", i.Name, "what", f.What, "want", f.Want, "found", f.Found), now)
		}
	}
	switch {
	case before.Conflict == nil && i.Conflict != nil:
		e.tell(observe.RepairsStop(i.Name, snapshots.ID{}, i.Conflict.String()), now)
	case before.Conflict != nil && i.Conflict == nil:
		e.tell(observe.RepairsGoOn(i.Name), now)
	}
}

// noteManualDrains tells of servers that somebody else took out of traffic, or gave back.
func (e *engine) noteManualDrains(i *instanceState, drains []push.ManualDrain, now time.Time) {
	for _, d := range drains {
		if !slices.Contains(i.running.ManualDrains, d) {
			e.tell(observe.Info("somebody took a server out of traffic, it stays out", "instance", i.Name, "server", d.String()), now)
		}
	}
	for _, d := range i.running.ManualDrains {
		if !slices.ContainsFunc(drains, func(o push.ManualDrain) bool { return o.Backend == d.Backend && o.Server == d.Server }) {
			e.tell(observe.Info("a server that somebody took out of traffic is back, or gone", "instance", i.Name, "server", d.Backend+"/"+d.Server), now)
		}
	}
	i.running.ManualDrains = drains
}
