package core

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/hapsnap/hapsnap/pusher/dataplane"
	"github.com/hapsnap/hapsnap/pusher/instance"
	"github.com/hapsnap/hapsnap/pusher/observe"
	"github.com/hapsnap/hapsnap/pusher/preflight"
	"github.com/hapsnap/hapsnap/pusher/push"
	"github.com/hapsnap/hapsnap/pusher/report"
	"github.com/hapsnap/hapsnap/pusher/rollout"
	"github.com/hapsnap/hapsnap/snapshots"
	"github.com/hapsnap/hapsnap/snapshots/bind"
)

// jobs begins work on instances, and takes its results.
type jobs struct {
	*world
	saving     *saving
	leadership *leadership
	uploads    *uploads
}

// beginPush begins a push.
func (j *jobs) beginPush(p rollout.Push, now time.Time) {
	i := j.instances[p.Instance]
	j.record(observe.Info("push begins", "instance", p.Instance, "snapshot", p.Snapshot, "why", p.Purpose.Why()), now)
	i.begin(workPush)
	j.do(instance.Push{
		Ref: i.ref(), Push: p, Want: j.bindings.Unbound(p.Snapshot, i.Layout), Whole: i.snapshot() != p.Snapshot,
		Running: j.bindings.Unbound(i.snapshot(), i.Layout), Have: i.running, Traceparent: j.traceparent(p.Snapshot),
	})
}

// beginApproved begins the pushes whose state is saved. If a job is under way on the instance, the
// push waits for it. The push is dropped if the conditions have changed under which the step
// decided on it.
func (j *jobs) beginApproved(may bool, now time.Time) {
	var waiting []approval
	for _, a := range j.saving.approved {
		switch i := j.instances[a.Instance]; {
		case !may || i == nil || i.ref() != a.on || !i.reachable() || i.ledByOther() || j.unclaimed(i) || !a.holds(j.decision, j.view):
			j.record(observe.Info("push not begun, what it was decided on has changed", "instance", a.Instance, "snapshot", a.Snapshot, "why", a.Purpose.Why()), now)
			j.results = append(j.results, rollout.Result{Instance: a.Instance, Snapshot: a.Snapshot, Outcome: rollout.NotBegun})
		case i.doing() != "":
			waiting = append(waiting, a)
		default:
			j.beginPush(a.Push, now)
		}
	}
	j.saving.approved = waiting
}

// beginWork begins the work that instances need and the rollout does not decide on.
func (j *jobs) beginWork(now time.Time) {
	for _, name := range j.names() {
		i := j.instances[name]
		w := j.workFor(i, now)
		if w == workNothing || w == workReload || j.saving.reservedFor(i, now) {
			continue
		}
		if w == workUpdate {
			j.beginUpdate(i)
			continue
		}
		on, want := i.ref(), j.bindings.Unbound(i.snapshot(), i.Layout)
		if w == workPersist && i.running.SetsAddresses && !i.running.Deferred && j.large(i) {
			i.writing, i.waits = true, false
			j.do(instance.Persist{Ref: on, Want: want, Have: i.running, Alone: true})
			continue
		}
		i.begin(w)
		switch w {
		case workPersist:
			j.do(instance.Persist{Ref: on, Want: want, Have: i.running})
		case workTidy:
			j.do(instance.Tidy{Ref: on, Have: i.running})
		case workCollect:
			garbage := i.garbage
			i.garbage, i.collected = nil, now
			j.do(instance.Collect{Ref: on, Garbage: garbage})
		case workInspect:
			j.do(instance.Inspect{Ref: on, Want: want, Have: i.running, Round: i.inspections})
		case workNothing, workReload, workUpdate:
		}
	}
}

// beginUpdate begins to give a worker current servers, map entries and certificates.
func (j *jobs) beginUpdate(i *instanceState) {
	i.begin(workUpdate)
	want := j.wanted(i)
	want.CallsOnly, i.beside = i.writing, i.writing
	i.attempted = wantsOf(want.Servers, want.Entries, want.Certificates)
	j.do(instance.Update{
		Ref: i.ref(), Want: want, Unbound: j.bindings.Unbound(i.snapshot(), i.Layout), Have: i.running,
		Snapshot: i.snapshot(), Traceparent: j.traceparent(i.snapshot()),
	})
}

// updateDraining gives the workers of draining instances current live data.
func (j *jobs) updateDraining(now time.Time) {
	for _, name := range slices.Sorted(maps.Keys(j.draining)) {
		i := j.draining[name]
		needs := j.needsOf(i)
		needs.Persisted, needs.Unserved, needs.Deferred, needs.Leftover, needs.Garbage, needs.Overdue = true, false, false, false, false, false
		if classify(needs, now) == workUpdate {
			j.beginUpdate(i)
		}
	}
}

// wanted returns what the worker should have according to the snapshot that it runs.
func (j *jobs) wanted(i *instanceState) push.Wanted {
	n, _ := j.bindings.Node(i.snapshot(), i.Layout)
	p, _ := j.bindings.Of(i.snapshot())
	return push.Wanted{Node: n.Name, Servers: p.Servers, Moved: j.bindings.Moved(), Namespaces: p.Namespaces, Dynamic: p.Dynamic, Certificates: n.Certificates, Entries: n.Entries}
}

// takeInstanceEvent takes what an event says about an instance, and how its effect ended.
func (m *Machine) takeInstanceEvent(event instance.Event, now time.Time) {
	about := event.From()
	i := m.instanceOf(about.Ref)
	// Events may arrive in another order than they were sent.
	if about.Known.Number > i.known.Number {
		i.known = about.Known
	}
	switch ev := event.(type) {
	case instance.JoinFailed:
		m.trouble(report.AboutFleet, ev.Err, now)
	case instance.Renewed:
		if ev.Err != nil {
			m.trouble(report.AboutFleet, ev.Err, now)
		}
	case instance.Probed:
		m.jobs.probed(i, ev, now)
	case instance.Checked:
		m.jobs.checked(i, ev, now)
	case instance.ClaimEnded:
		m.jobs.claimEnded(i, ev, now)
	case instance.PushEnded:
		m.jobs.pushEnded(i, ev, now)
	case instance.UpdateEnded:
		m.jobs.updateEnded(i, ev, now)
	case instance.PersistEnded:
		m.jobs.persistEnded(i, ev, now)
	case instance.TidyEnded:
		m.jobs.ended(i, workTidy, ev.Err, now)
		i.tidied, i.running = now, ev.Have
	case instance.CollectEnded:
		m.jobs.collectEnded(i, ev, now)
	case instance.InspectEnded:
		m.jobs.inspectEnded(i, ev, now)
	case instance.MendEnded:
		m.jobs.mendEnded(i, ev, now)
	case instance.Sampled:
		m.sampling.sampled(i, ev, now)
	}
}

// probed takes an instance's answer to a probe, or the error.
func (j *jobs) probed(i *instanceState, ev instance.Probed, now time.Time) {
	if isRefused(ev.Err) && !isRefused(i.err) {
		j.record(observe.Error("instance refused, nothing is pushed to it", "instance", i.Name, "err", ev.Err), now)
	}
	before, asked := i.err, i.asked
	i.takeProbe(ev.Info, ev.Err, ev.Asked, now)
	if i.Draining {
		return
	}
	// Tell people once when an instance becomes unreachable, refuses the credentials, or answers
	// again.
	denied := func(err error) bool { return errors.Is(err, dataplane.ErrUnauthorized) }
	same := asked && (before == nil) == (i.err == nil) && denied(before) == denied(i.err)
	switch {
	case same || !i.asked || isRefused(i.err):
	case i.err == nil && asked:
		j.record(observe.Info("instance answers again", "instance", i.Name), now)
	case i.err == nil:
	case denied(i.err):
		j.record(observe.Warn("wrong credentials: the Dataplane API of an instance refuses them, nothing can be pushed to it", "instance", i.Name, "url", i.URL, "err", i.err,
			"hint", "make username and password in the Fleet those of its Dataplane API"), now)
	default:
		j.record(observe.Warn("instance cannot be reached, rollouts go on without it", "instance", i.Name, "url", i.URL, "err", i.err, "hint", reachHint(i.err)), now)
	}
	// When an instance answers for the first time, or again, the pusher checks it for conditions
	// under which a push would fail. Nothing waits for that check.
	switch {
	case !i.reachable():
		i.checked = false
	case !i.checked:
		i.checked = true
		j.do(instance.Check{Ref: i.ref()})
	}
}

// reachHint says what to do if an instance cannot be reached.
func reachHint(err error) string {
	text := err.Error()
	switch {
	case strings.Contains(text, "credentials are not known"):
		return "write them into the file that the Fleet names; nothing is sent without them"
	case strings.Contains(text, "certificate has expired"):
		return "its certificate has to be renewed, or a clock is wrong"
	case strings.Contains(text, "unknown authority"):
		return "name the authority of its certificate in tls.caFile of the Fleet"
	case strings.Contains(text, "certificate is valid for"):
		return "name in tls.serverName of the Fleet what its certificate is for"
	case errors.Is(err, dataplane.ErrRuntime):
		return "its Dataplane API answers, but no HAProxy does: see whether HAProxy runs, and what it logged when it started"
	}
	return "see whether its Dataplane API runs, and whether url in the Fleet is its address"
}

// isRefused reports whether the pusher refuses an instance because of its versions.
func isRefused(err error) bool {
	_, refused := errors.AsType[dataplane.UnsupportedError](err)
	return refused
}

// checked keeps the findings of a check, and logs those that are new. It ignores warnings, which
// only the command `check` prints.
func (j *jobs) checked(i *instanceState, ev instance.Checked, now time.Time) {
	if ev.Err != nil {
		return // probes report that the instance is unreachable
	}
	found := slices.DeleteFunc(slices.Clone(ev.Found), func(f preflight.Finding) bool { return f.Warning })
	found = append(found, j.twin(i)...)
	for _, f := range found {
		if !slices.Contains(i.findings, f) {
			j.record(observe.Warn("instance is not set up well", "instance", i.Name, "check", f.Check, "err", f.Message, "hint", f.Hint), now)
		}
	}
	i.findings = found
}

// twin finds another instance that is the same one: both names lead to one address and to one worker. Without this
// finding, the instance that the second name was meant for would get nothing, and be reported as in sync. The same
// address alone proves nothing, since a proxy may be there.
func (j *jobs) twin(i *instanceState) []preflight.Finding {
	at, known := i.address()
	if !known || !i.reachable() {
		return nil
	}
	twin := ""
	for name, o := range j.instances {
		if o == i || twin != "" && name > twin || !o.reachable() || o.info.PID != i.info.PID || o.info.LoadedNode() != i.info.LoadedNode() ||
			o.started.Sub(i.started).Abs() > twinSlack {
			continue
		}
		if other, ok := o.address(); ok && other == at {
			twin = name
		}
	}
	if twin == "" {
		return nil
	}
	return []preflight.Finding{{
		Check: "fleet", Message: fmt.Sprintf("%s has the same address, %s, and the same worker: both may be one instance", twin, at),
		Hint: "see where their urls lead; an instance that neither leads to gets nothing",
	}}
}

// twinSlack is by how much the beginnings of one worker may differ in two answers: its age is in whole seconds.
const twinSlack = 2 * time.Second

// free notes that the job on an instance has ended. If the instance has joined again meanwhile, its
// new state has inherited the job, and is free too.
func (j *jobs) free(i *instanceState, now time.Time) {
	i.busy, i.ended = "", now
	if current := j.instances[i.Name]; current != nil && current != i && current.UID == i.UID {
		current.busy = ""
	}
}

// large reports whether the configuration of an instance is so large that updates go on while the file is written.
func (j *jobs) large(i *instanceState) bool {
	p, _ := j.bindings.Of(i.snapshot())
	return push.Large(p.Servers)
}

// ended notes the end of a job other than a push, a claim or a collection.
func (j *jobs) ended(i *instanceState, w work, err error, now time.Time) {
	j.free(i, now)
	j.noteEnd(i, w, err, now)
}

// noteEnd is ended for a job beside which another one may be under way.
func (j *jobs) noteEnd(i *instanceState, w work, err error, now time.Time) {
	if instance.Interrupted(err) {
		err = nil // the process is about to end
	}
	i.lastWork, i.ended = w, now
	switch {
	case err != nil:
		i.end(w, err, j.PollInterval, now)
	case w == workUpdate && i.diskFailed(): // see updateEnded
	case i.stuck == nil || !j.needsOf(i).differs(): // otherwise the rest of the last update is still to be done, and its error still to be shown
		i.end(w, nil, j.PollInterval, now)
	}
	j.record(observe.Worked{Kind: string(w), Failed: err != nil}, now)
	if err != nil {
		j.record(observe.Warn("instance not brought up to date", "instance", i.Name, "work", string(w), "err", err), now)
		j.leadership.outranked(i, err)
		j.leadership.notLed(i, err)
	}
}

// claimEnded takes the result of a claim. After a failed claim other work may begin, unless another
// pusher leads the instance.
func (j *jobs) claimEnded(i *instanceState, ev instance.ClaimEnded, now time.Time) {
	err := ev.Err
	j.free(i, now)
	if instance.Interrupted(err) {
		return // the process, or the term, is about to end
	}
	j.record(observe.Worked{Kind: string(workClaim), Failed: err != nil}, now)
	if i.claimFailed {
		i.jobError, i.jobErrorAt, i.jobFailed, i.claimFailed = "", time.Time{}, "", false
	}
	j.dirty = true
	if err == nil {
		i.claimed, i.claimEnded = claim{true, ev.Term}, now
		return
	}
	i.claimAfter = now.Add(claimRetry)
	if !i.ledByOther() { // if another pusher leads it, tellRecord reports that
		j.record(observe.Warn("cannot note on an instance that this pusher leads it, trying again", "instance", i.Name, "term", ev.Term, "err", err), now)
	}
	if !j.leadership.outranked(i, err) {
		i.jobError, i.jobErrorAt, i.jobFailed, i.claimFailed = err.Error(), now, workClaim, true
	}
	j.leadership.notLed(i, err)
}

// pushEnded takes the result of a push.
func (j *jobs) pushEnded(i *instanceState, p instance.PushEnded, now time.Time) {
	done, err := p.Done, p.Err
	r := rollout.Result{Instance: p.Push.Instance, Snapshot: p.Push.Snapshot, Outcome: p.Outcome(), PID: done.Info.PID, Reloaded: done.Reloaded}
	j.free(i, now)
	if current := j.instances[p.Push.Instance]; current != nil && current.UID != i.UID {
		return // the push was to an earlier pod with this name, which is gone
	}
	keys := append([]any{"instance", p.Push.Instance, "snapshot", p.Push.Snapshot, "why", p.Push.Purpose.Why(), "took", p.Took.Round(time.Millisecond)}, p.Change.Logged()...)
	// Remember what a push of a wave changed. A push that found nothing to do has changed nothing,
	// and a push that could not be bound has no change to remember.
	took := done.Reloaded || err != nil || p.Change.Class != bind.Reload
	if p.Push.Purpose == rollout.Wave && took && !p.Change.Snapshot.IsZero() {
		j.changes = report.WithChange(j.changes, p.Change, j.state.Rollout.Rollout)
	}
	pushed := observe.Pushed{
		Instance: p.Push.Instance, Snapshot: p.Push.Snapshot, Why: p.Push.Purpose.Why(), Outcome: r.Outcome, Reloaded: done.Reloaded, Took: p.Took, Change: p.Change,
	}
	if err != nil {
		pushed.Error = push.Gist(err)
	}
	j.record(pushed, now)
	j.lost(done.Lost, now)
	j.uploads.noteCertificates(i, p.Want.ID, p.Written)
	if err != nil {
		r.Error = push.Gist(err)
		j.record(observe.Warn("push failed", keys...).With("outcome", string(r.Outcome), "err", err), now)
		j.pushFailed(i, p)
	} else {
		if done.Why != "" {
			keys = append(keys, "for", done.Why)
		}
		j.record(observe.Info("push done", keys...).With("node", p.Want.Node, "pid", done.Info.PID, "reloaded", done.Reloaded), now)
		j.pushApplied(i, p, now)
	}
	j.results = append(j.results, r)
}

// pushFailed notes what a failed push means for an instance.
func (j *jobs) pushFailed(i *instanceState, p instance.PushEnded) {
	if p.Push.AtRuntime {
		// The worker was not changed, or only in part, and the file on disk may already have the
		// snapshot. After a second failure the snapshot needs a reload.
		if errors.Is(p.Err, push.ErrNeedsReload) || j.state.Rollout.Instances[p.Push.Instance].Failures > 0 {
			i.needsReload = p.Push.Snapshot.Short
		}
		i.running = i.running.Another().Unsure(p.Done.Running)
		i.running.Disk = push.Digest{}
	}
	j.leadership.outranked(i, p.Err)
	j.leadership.notLed(i, p.Err)
}

// pushApplied notes what an instance runs and has on disk after a successful push.
func (j *jobs) pushApplied(i *instanceState, p instance.PushEnded, now time.Time) {
	done := p.Done
	i.asked, i.err = true, nil
	i.takeInfo(done.Info, now)
	if done.Reloaded {
		// Forget failures with the previous worker. A failed claim concerns the disk, so it is not
		// forgotten.
		if !i.claimFailed {
			i.jobError, i.jobErrorAt = "", time.Time{}
		}
		i.jobFailed, i.jobFailures, i.jobNotBefore = "", 0, time.Time{}
		i.running = i.running.Another()
		i.running.Servers, i.running.Persisted, i.running.Written = push.Loaded(p.Want.Servers), true, p.Want.Servers
		i.running.Certificates, i.running.Maps, i.running.Info = p.Certificates, p.Want.Entries, done.Info
	}
	if p.Push.AtRuntime {
		j.noteManualDrains(i, done.Running.ManualDrains, now)
		i.running = done.Running
	}
	j.record(observe.InstanceUpdated{Instance: i.Name}, now) // the snapshot was bound with the endpoints of that moment
	i.running.Disk, i.inspectAfter = done.Disk, now.Add(j.InspectInterval)
}

// updateEnded takes the result of an update of the running worker.
func (j *jobs) updateEnded(i *instanceState, u instance.UpdateEnded, now time.Time) {
	have := u.Have
	if i.beside {
		have = have.WithFile(i.running, j.wanted(i).Servers)
		i.beside, i.waits = false, i.writing && have.Waits
	}
	if !have.Unfinished {
		i.stuck = nil // otherwise an error of the last update stands until the last part is made
	}
	j.ended(i, workUpdate, u.Err, now)
	if have.Info.PID != 0 {
		i.takeInfo(have.Info, u.Began) // the worker answered later than that; a time that is too early does no harm
	}
	j.noteManualDrains(i, have.ManualDrains, now)
	j.lost(have.Lost, now)
	if u.Err == nil {
		j.record(observe.InstanceUpdated{Instance: i.Name}, now)
	}
	i.running = have
	if i.jobFailed == workPersist && j.needsOf(i).Persisted {
		i.end(workUpdate, nil, j.PollInterval, now) // it wrote the file
	}
	if u.Err != nil {
		attempted := i.attempted
		i.stuck = &attempted
	}
	if have.Reloaded {
		if !i.Draining {
			j.reloads[i.Name] = have.Info.PID
		}
		i.running.Reloaded = false
	}
	if u.Err == nil && u.Had.Servers != nil {
		j.record(observe.Debug("servers and certificates changed at run time", "instance", i.Name, "node", u.Node), now)
	}
}

// persistEnded takes the result of writing servers to disk.
func (j *jobs) persistEnded(i *instanceState, p instance.PersistEnded, now time.Time) {
	if current := j.instances[i.Name]; current != nil && current.UID == i.UID { // it may have joined again
		current.running.Disk = p.Have.Disk
	}
	if p.Alone {
		j.writeEnded(i, p, now)
		return
	}
	j.ended(i, workPersist, p.Err, now)
	i.persisted, i.persistTook = now, p.Took
	j.noteManualDrains(i, p.Have.ManualDrains, now)
	i.running = p.Have
}

// writeEnded takes the result of writing the file while updates went on. One of them may still be under way.
func (j *jobs) writeEnded(i *instanceState, p instance.PersistEnded, now time.Time) {
	i.writing, i.waits = false, false
	if current := j.instances[i.Name]; current != nil && current.UID == i.UID { // it may have joined again
		current.writing, current.waits = false, false
	}
	j.noteEnd(i, workPersist, p.Err, now)
	i.persisted, i.persistTook = now, p.Took
	i.running = i.running.WithFile(p.Have, j.wanted(i).Servers)
}

// collectEnded notes which files were removed. A failure holds up no other work on the instance.
func (j *jobs) collectEnded(i *instanceState, c instance.CollectEnded, now time.Time) {
	failed := c.Err
	if instance.Interrupted(failed) {
		failed = nil // the process is about to end
	}
	j.record(observe.Worked{Kind: string(workCollect), Failed: failed != nil}, now)
	if current := j.instances[i.Name]; current != nil && current.UID != i.UID {
		return // the files were on an earlier pod with this name, which is gone
	}
	j.free(i, now)
	i.reviewed, i.garbageSince = review{}, time.Time{}
	if failed != nil || len(c.Removed) < len(c.Garbage) {
		i.collectAfter = now.Add(collectRetry)
	}
	if failed != nil {
		j.record(observe.Warn("files not removed that nothing needs", "instance", i.Name, "files", len(c.Garbage)-len(c.Removed), "err", failed), now)
		j.leadership.outranked(i, failed)
	}
	if len(c.Removed) == 0 {
		return
	}
	removed := make(map[push.Stored]bool, len(c.Removed))
	for _, f := range c.Removed {
		removed[f] = true
	}
	j.state.Uploads[i.Name] = slices.DeleteFunc(slices.Clone(j.state.Uploads[i.Name]), func(u Upload) bool { return removed[u.Stored] })
	j.dirty = true
	j.record(observe.Info("files removed that nothing needs", "instance", i.Name, "files", len(c.Removed)), now)
}

// inspectEnded takes the result of an inspection.
func (j *jobs) inspectEnded(i *instanceState, n instance.InspectEnded, now time.Time) {
	j.ended(i, workInspect, n.Err, now)
	i.inspectAfter = now.Add(j.InspectInterval)
	i.inspections++
	if (n.Err == nil || len(n.Found.Faults) > 0) && i.info.PID == n.Found.Running.Info.PID {
		// Faults are repaired, unless somebody else keeps undoing the repairs.
		was := remembered(i)
		j.noteManualDrains(i, n.Found.Running.ManualDrains, now)
		before := i.conflict
		next, repair := remembered(i).judge(n.Found.Faults, now)
		i.repairs, i.conflict = next.Repairs, next.Conflict
		for _, f := range n.Found.Faults {
			if repair {
				j.record(observe.Warn("drift is repaired", "instance", i.Name, "what", f.What, "want", f.Want, "found", f.Found), now)
			}
		}
		switch {
		case before == nil && i.conflict != nil:
			j.record(observe.RepairsStop(i.Name, snapshots.ID{}, i.conflict.String()), now)
		case before != nil && i.conflict == nil:
			j.record(observe.RepairsGoOn(i.Name), now)
		}
		if len(n.Found.Faults) == 0 || repair {
			i.running = n.Found.Running
		}
		if !sameJSON(remembered(i), was) {
			j.dirty = true
		}
		if repair && slices.ContainsFunc(n.Found.Faults, push.Fault.OnDisk) {
			i.begin(workMend)
			j.do(instance.Mend{Ref: i.ref(), Want: n.Inspect.Want})
		}
	}
}

// mendEnded takes the result of a repair of files.
func (j *jobs) mendEnded(i *instanceState, m instance.MendEnded, now time.Time) {
	j.ended(i, workMend, m.Err, now)
	i.running.Disk, i.running.Written, i.persisted = m.Disk, m.Servers, now
	if m.Err != nil {
		i.running.Written = nil
	}
}

// judge decides after an inspection whether to repair the faults. [rollout.Repairs] has the rules.
func (k savedInstance) judge(faults []push.Fault, now time.Time) (next savedInstance, repair bool) {
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
		k.Conflict = &report.Conflict{Since: repairs.Stopped.UTC().Truncate(time.Second), Faults: faults}
	}
	return k, repair
}

// noteManualDrains reports servers that somebody took out of traffic by hand, or put back.
func (j *jobs) noteManualDrains(i *instanceState, drains []push.ManualDrain, now time.Time) {
	for _, d := range drains {
		if !slices.Contains(i.running.ManualDrains, d) {
			j.record(observe.Info("somebody took a server out of traffic, it stays out", "instance", i.Name, "server", d.String()), now)
		}
	}
	for _, d := range i.running.ManualDrains {
		if !slices.ContainsFunc(drains, func(o push.ManualDrain) bool { return o.Backend == d.Backend && o.Server == d.Server }) {
			j.record(observe.Info("a server that somebody took out of traffic is back, or gone", "instance", i.Name, "server", d.Backend+"/"+d.Server), now)
		}
	}
	i.running.ManualDrains = drains
}
