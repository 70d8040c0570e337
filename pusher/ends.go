package pusher

import (
	"context"
	"errors"
	"path"
	"slices"
	"time"

	"github.com/hapsnap/hapsnap/pusher/dataplane"
	"github.com/hapsnap/hapsnap/pusher/preflight"
	"github.com/hapsnap/hapsnap/pusher/push"
	"github.com/hapsnap/hapsnap/pusher/rollout"
	"github.com/hapsnap/hapsnap/snapshots/bind"
)

// probed is what an instance answered when it was asked at a time, or why it did not.
type probed struct {
	of    *instance
	info  dataplane.RuntimeInfo
	err   error
	asked time.Time
}

func (p probed) apply(e *engine, now time.Time) {
	if isRefused(p.err) && !isRefused(p.of.err) {
		e.logger(p.of.Name).Error("instance refused, nothing is pushed to it", "err", p.err)
	}
	p.of.takeProbe(p.info, p.err, p.asked, now)
	e.checkOnce(p.of)
}

func (p probed) String() string {
	return describe("probed", "instance", p.of.Name, "node", p.info.Node, "pid", p.info.PID, "err", p.err)
}

// isRefused reports whether an instance is refused for what it is.
func isRefused(err error) bool {
	_, refused := errors.AsType[dataplane.UnsupportedError](err)
	return refused
}

// checked is what is wrong with how an instance is set up.
type checked struct {
	of    *instance
	found []preflight.Finding
}

// apply keeps what is wrong with an instance, and logs what is new. Warnings are for the verb
// check: what works may stay as it is.
func (c checked) apply(e *engine, _ time.Time) {
	found := slices.DeleteFunc(c.found, func(f preflight.Finding) bool { return f.Warning })
	for _, f := range found {
		if !slices.Contains(c.of.findings, f) {
			e.logger(c.of.Name).Warn("instance is not set up well", "check", f.Check, "err", f.Message, "hint", f.Hint)
		}
	}
	c.of.findings = found
}

func (c checked) String() string {
	return describe("checked", "instance", c.of.Name, "findings", len(c.found))
}

// free notes that no job is under way on an instance, also where another one has its place
// that has inherited the job.
func (e *engine) free(i *instance, now time.Time) {
	i.busy, i.ended = "", now
	if current := e.instances[i.Name]; current != nil && current != i && current.UID == i.UID {
		current.busy = ""
	}
}

// ended notes the end of a job, apart from a push, whose end the rollout notes.
func (e *engine) ended(i *instance, w work, err error, now time.Time) {
	if errors.Is(err, context.Canceled) {
		err = nil // the process is about to end
	}
	i.end(err, e.PollInterval, now)
	e.free(i, now)
	e.metrics.worked(w, err)
	if err != nil {
		e.logger(i.Name).Warn("instance not brought up to date", "work", string(w), "err", err)
		e.outranked(i, err)
		e.notLed(i, err)
	}
}

// claimEnded is the end of a claim.
type claimEnded struct {
	of   *instance
	term int64
	err  error
}

// apply notes the claim. One that failed keeps nothing else from being done, unless another
// pusher leads the instance.
func (c claimEnded) apply(e *engine, now time.Time) {
	i, err := c.of, c.err
	e.free(i, now)
	if errors.Is(err, context.Canceled) {
		return // the process, or the term, is about to end
	}
	e.metrics.worked(workClaim, err)
	if i.claimFailed {
		i.jobError, i.jobErrorAt, i.claimFailed = "", time.Time{}, false
	}
	e.dirty = true
	if err == nil {
		i.claimed = claim{true, c.term}
		return
	}
	i.claimAfter = now.Add(claimRetry)
	if !i.ledByOther() { // that is told once
		e.logger(i.Name).Warn("instance not claimed", "term", c.term, "err", err)
	}
	if !e.outranked(i, err) {
		i.jobError, i.jobErrorAt, i.claimFailed = err.Error(), now, true
	}
	e.notLed(i, err)
}

func (c claimEnded) String() string {
	return describe("claim ended", "instance", c.of.Name, "term", c.term, "err", c.err)
}

// pushEnded is the end of a push.
type pushEnded struct {
	of     *instance
	push   rollout.Push
	want   bind.Bound
	change Change
	done   push.Done
	took   time.Duration
	err    error
}

func (p pushEnded) apply(e *engine, now time.Time) {
	i, done, err := p.of, p.done, p.err
	r := rollout.Result{Instance: p.push.Instance, Snapshot: p.push.Snapshot, Outcome: outcome(err), PID: done.Info.PID, Reloaded: done.Reloaded}
	e.free(i, now)
	if current := e.instances[p.push.Instance]; current != nil && current.UID != i.UID {
		return // it was a push to another pod, which is gone
	}
	log := e.Log.With("instance", p.push.Instance, "snapshot", p.push.Snapshot, "why", string(p.push.Purpose), "took", p.took.Round(time.Millisecond)).With(p.change.logged()...)
	e.noteChange(p.push, p.change, done.Reloaded, err)
	e.metrics.pushed(r.Outcome, done.Reloaded, p.took)
	e.metrics.lost.Add(float64(done.Lost))
	e.noteCertificates(i, p.want)
	if p.push.Light && err != nil {
		e.failedLight(i, p.push, err)
	}
	if err != nil {
		r.Error = push.Gist(err)
		e.outranked(i, err)
		e.notLed(i, err)
		log.Warn("push failed", "outcome", string(r.Outcome), "err", err)
	} else {
		if done.Why != "" {
			log = log.With("for", done.Why)
		}
		log.Info("push done", "node", p.want.Node, "pid", done.Info.PID, "reloaded", done.Reloaded, "light", p.push.Light)
		i.asked, i.err = true, nil
		i.takeInfo(done.Info, now)
		if done.Reloaded {
			i.forgetJobs()
			i.running = push.Running{
				Servers: push.Loaded(p.want.Servers), Persisted: true, Written: p.want.Servers, Certificates: push.Hashes(p.want), Maps: p.want.Entries,
				Info: done.Info, ByHand: i.running.ByHand,
			}
		}
		if p.push.Light {
			e.noteHands(i, done.Running.ByHand)
			i.running = done.Running
		}
		i.running.Disk, i.inspectAfter = done.Disk, now.Add(e.InspectInterval)
	}
	e.results = append(e.results, r)
}

func (p pushEnded) String() string {
	return describe("push ended", "instance", p.push.Instance, "snapshot", p.push.Snapshot, "why", string(p.push.Purpose),
		"outcome", string(outcome(p.err)), "pid", p.done.Info.PID, "reloaded", p.done.Reloaded, "err", p.err)
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

// updateEnded is the end of a change of the running worker.
type updateEnded struct {
	of        *instance
	node      string
	began     time.Time
	had, have push.Running
	err       error
}

func (u updateEnded) apply(e *engine, now time.Time) {
	i, have := u.of, u.have
	e.ended(i, workUpdate, u.err, now)
	if have.Info.PID != 0 {
		i.takeInfo(have.Info, u.began) // rather too early, which is on the safe side
	}
	e.noteHands(i, have.ByHand)
	e.metrics.lost.Add(float64(have.Lost))
	if u.err == nil {
		e.tally.changed(i.Name)
	}
	i.running = have
	if have.Reloaded {
		e.reloads[i.Name] = have.Info.PID
		i.running.Reloaded = false
	}
	if u.err == nil && u.had.Servers != nil {
		e.logger(i.Name).Debug("servers and certificates changed at run time", "node", u.node)
	}
}

func (u updateEnded) String() string {
	return describe("update ended", "instance", u.of.Name, "node", u.node, "reloaded", u.have.Reloaded, "err", u.err)
}

// persistEnded is the end of writing servers to disk.
type persistEnded struct {
	of   *instance
	have push.Running
	took time.Duration
	err  error
}

func (p persistEnded) apply(e *engine, now time.Time) {
	e.ended(p.of, workPersist, p.err, now)
	p.of.persisted, p.of.persistTook = now, p.took
	e.noteHands(p.of, p.have.ByHand)
	p.of.running = p.have
}

func (p persistEnded) String() string {
	return describe("persist ended", "instance", p.of.Name, "err", p.err)
}

// tidyEnded is the end of deleting dynamic servers.
type tidyEnded struct {
	of   *instance
	have push.Running
	err  error
}

func (t tidyEnded) apply(e *engine, now time.Time) {
	e.ended(t.of, workTidy, t.err, now)
	t.of.tidied, t.of.running = now, t.have
}

func (t tidyEnded) String() string {
	return describe("tidy ended", "instance", t.of.Name, "err", t.err)
}

// collectEnded is the end of removing files.
type collectEnded struct {
	of               *instance
	garbage, removed []push.Stored
	err              error
}

// apply notes which files are gone. A failure keeps an instance from nothing that it should
// have.
func (c collectEnded) apply(e *engine, now time.Time) {
	i, failed := c.of, c.err
	if errors.Is(failed, context.Canceled) {
		failed = nil // the process is about to end
	}
	e.metrics.worked(workCollect, failed)
	if current := e.instances[i.Name]; current != nil && current.UID != i.UID {
		return // it was another pod, which is gone
	}
	e.free(i, now)
	i.reviewed, i.garbageSince = review{}, time.Time{}
	if failed != nil || len(c.removed) < len(c.garbage) {
		i.collectAfter = now.Add(collectRetry)
	}
	if failed != nil {
		e.logger(i.Name).Warn("files not removed that nothing needs", "files", len(c.garbage)-len(c.removed), "err", failed)
		e.outranked(i, failed)
	}
	if len(c.removed) == 0 {
		return
	}
	for _, f := range c.removed {
		if f.Kind == bind.CertificateFile {
			delete(i.onDisk, path.Join(i.Layout.Certificates, f.Name))
		}
	}
	e.state.Uploads[i.Name] = slices.DeleteFunc(slices.Clone(e.state.Uploads[i.Name]), func(u upload) bool {
		return slices.Contains(c.removed, u.Stored)
	})
	e.dirty = true
	e.logger(i.Name).Info("files removed that nothing needs", "files", len(c.removed))
}

func (c collectEnded) String() string {
	return describe("collect ended", "instance", c.of.Name, "removed", len(c.removed), "err", c.err)
}

// inspectEnded is the end of an inspection.
type inspectEnded struct {
	of    *instance
	had   push.Running
	found push.Inspection
	want  toBind
	err   error
}

func (n inspectEnded) apply(e *engine, now time.Time) {
	i := n.of
	e.ended(i, workInspect, n.err, now)
	i.inspectAfter = now.Add(e.InspectInterval)
	if n.err == nil && i.info.PID == n.had.Info.PID {
		i.inspections++
		e.inspected(i, n.found, n.want, now)
	}
}

func (n inspectEnded) String() string {
	return describe("inspect ended", "instance", n.of.Name, "faults", n.found.Faults, "err", n.err)
}

// mendEnded is the end of putting files back.
type mendEnded struct {
	of      *instance
	disk    push.Digest
	servers []bind.Server
	err     error
}

func (m mendEnded) apply(e *engine, now time.Time) {
	i := m.of
	e.ended(i, workMend, m.err, now)
	i.running.Disk, i.running.Written, i.persisted = m.disk, m.servers, now
	if m.err != nil {
		i.running.Written = nil
	}
}

func (m mendEnded) String() string {
	return describe("mend ended", "instance", m.of.Name, "err", m.err)
}

// sampled is the end of asking for statistics.
type sampled struct {
	of     *instance
	sample rollout.Sample
	err    error
}

func (s sampled) apply(e *engine, _ time.Time) {
	s.of.sampling = false
	if s.err != nil {
		e.logger(s.of.Name).Debug("statistics not had", "err", s.err)
		return
	}
	s.of.samples = s.of.samples.add(s.sample)
}

func (s sampled) String() string {
	return describe("sampled", "instance", s.of.Name, "requests", s.sample.Requests, "err", s.err)
}
