package pusher

import (
	"context"
	"errors"
	"fmt"
	"time"

	"go.opentelemetry.io/otel/trace"

	"github.com/hapsnap/hapsnap/pusher/dataplane"
	"github.com/hapsnap/hapsnap/pusher/fleet"
	"github.com/hapsnap/hapsnap/pusher/preflight"
	"github.com/hapsnap/hapsnap/pusher/push"
	"github.com/hapsnap/hapsnap/pusher/rollout"
	"github.com/hapsnap/hapsnap/snapshots"
	"github.com/hapsnap/hapsnap/snapshots/bind"
)

// remote is what an effect has of its instance. The engine keeps the rest to itself.
type remote struct {
	of     *instance // whom the end of the effect is about
	spec   fleet.Instance
	client *dataplane.Client
	target push.Instance
	onDisk push.Known
	gone   <-chan struct{} // closed when the instance is
	limit  time.Duration   // of a job
}

// remote returns what an effect needs of an instance. The limit bounds a job, so that an
// instance that hangs is free again some day: a push looks, uploads, reloads, and may have
// to do so again.
func (e *engine) remote(i *instance) remote {
	return remote{
		of: i, spec: i.Instance, client: i.client, target: i.target, onDisk: i.onDisk, gone: i.gone,
		limit: 3*e.ReloadTimeout + 30*time.Second,
	}
}

// within returns a context for a job, which ends when the instance is gone, or takes too long.
func (r remote) within(ctx context.Context, limit time.Duration) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithTimeout(ctx, limit)
	ctx, end := untilClosed(ctx, r.gone)
	return ctx, func() { end(); cancel() }
}

func (r remote) describe(what string, keys ...any) string {
	return describe(what, append([]any{"instance", r.spec.Name}, keys...)...)
}

// toBind is a snapshot for an instance, and what the engine knew when it decided to have it
// bound. That is slow for a large snapshot, so jobs do it.
type toBind struct {
	binder   *bind.Binder
	snapshot snapshots.Snapshot
	binding  bind.Inputs
	id       snapshots.ID
	known    bool
	// whole is set where the instance must get all that the snapshot needs.
	whole bool
}

// bind returns what binds a snapshot for an instance to what is known now.
func (e *engine) bind(id snapshots.ID, i *instance) toBind {
	snapshot, binding, ok := e.bindings.binding(id, i.Layout)
	return toBind{binder: &e.bindings.binder, snapshot: snapshot, binding: binding, id: id, known: ok}
}

func (b toBind) bind() (bind.Bound, error) {
	if !b.known {
		return bind.Bound{}, fmt.Errorf("snapshot %s is not at hand", b.id)
	}
	bound, err := b.binder.Bind(b.snapshot, b.binding)
	if err == nil && b.whole && len(bound.Absent) > 0 {
		err = fmt.Errorf("push %s: %w: %s", bound.ID, errAbsent, bound.Absent[0])
	}
	return bound, err
}

// askInstance asks an instance again and again what its worker runs, until the engine lets
// go of the instance.
type askInstance struct {
	remote
	every, timeout time.Duration
	until          <-chan struct{}
}

func (a askInstance) run(ctx context.Context, send func(event)) {
	ctx, cancel := untilClosed(ctx, a.until)
	defer cancel()
	ask(ctx, a.remote, a.every, a.timeout, func(info dataplane.RuntimeInfo, err error, asked time.Time) {
		send(probed{a.of, info, err, asked})
	})
}

func (a askInstance) String() string { return a.describe("ask") }

// RuntimeInfo asks the worker what it runs.
func (r remote) RuntimeInfo(ctx context.Context) (dataplane.RuntimeInfo, error) {
	return r.target.RuntimeInfo(ctx)
}

// Supported returns an error of an API that is not worked with.
func (r remote) Supported(ctx context.Context) error { return r.client.Supported(ctx) }

// respondent is an instance that is asked what it runs.
type respondent interface {
	RuntimeInfo(ctx context.Context) (dataplane.RuntimeInfo, error)
	// Supported returns an error of an API that is not worked with.
	Supported(ctx context.Context) error
}

// ask asks the instance again and again what it runs, and reports each answer,
// until ctx is done. Of its version the API is asked when it is met, and after it
// was out of reach: it may be another one then.
func ask(ctx context.Context, api respondent, every, timeout time.Duration, report func(dataplane.RuntimeInfo, error, time.Time)) {
	ticker := time.NewTicker(every)
	defer ticker.Stop()
	for met := false; ; {
		asked := time.Now()
		once, cancel := context.WithTimeout(ctx, timeout)
		info, err := askOnce(once, api, met)
		cancel()
		if ctx.Err() != nil {
			return
		}
		met = err == nil || (met && errors.Is(err, dataplane.ErrRuntime))
		report(info, err, asked)
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
	}
}

func askOnce(ctx context.Context, api respondent, met bool) (dataplane.RuntimeInfo, error) {
	if !met {
		if err := api.Supported(ctx); err != nil {
			return dataplane.RuntimeInfo{}, err
		}
	}
	info, err := api.RuntimeInfo(ctx)
	if err == nil {
		err = dataplane.CheckHAProxy(info.Version)
	}
	return info, err
}

// checkTimeout bounds a check of an instance, which is logged or not.
const checkTimeout = 30 * time.Second

// checkInstance looks for what would keep a push from working, as the verb check does. It
// writes nothing.
type checkInstance struct{ remote }

func (c checkInstance) run(ctx context.Context, send func(event)) {
	ctx, cancel := c.within(ctx, checkTimeout)
	defer cancel()
	facts := preflight.Gather(ctx, c.client, c.spec, false)
	if ctx.Err() != nil || facts.Reached != nil {
		return // that it is out of reach is seen elsewhere
	}
	send(checked{c.of, preflight.Judge(facts)})
}

func (c checkInstance) String() string { return c.describe("check") }

// claimInstance looks who leads an instance and what its worker was started from, and writes
// to its disk that this pusher leads it, and in which term.
type claimInstance struct {
	remote
	term  int64
	fence *push.Fence
}

func (c claimInstance) run(ctx context.Context, send func(event)) {
	ctx, cancel := c.within(ctx, c.target.ReloadTimeout)
	defer cancel()
	err := c.target.Judge(ctx)
	if err == nil {
		err = c.fence.Claim(ctx, c.client, c.target.Record)
	}
	send(claimEnded{c.of, c.term, err})
}

func (c claimInstance) String() string { return c.describe("claim", "term", c.term) }

// pushSnapshot brings one instance to run a snapshot.
type pushSnapshot struct {
	remote
	push          rollout.Push
	want, running toBind
	have          push.Running
	span          trace.Span
}

func (p pushSnapshot) run(ctx context.Context, send func(event)) {
	ctx, cancel := p.within(trace.ContextWithSpan(ctx, p.span), p.limit)
	defer cancel()
	began := time.Now()
	end := pushEnded{of: p.of, push: p.push}
	if end.want, end.err = p.want.bind(); end.err == nil {
		var good *bind.Bound
		running, goodErr := p.running.bind()
		if goodErr == nil {
			good = &running
		}
		switch {
		case !p.push.Light:
			end.done, end.err = p.target.Push(ctx, end.want, good, p.onDisk)
		case goodErr != nil:
			end.err = fmt.Errorf("%w: %w", push.ErrNeedsReload, goodErr) // which has its budget
		default:
			end.done, end.err = p.target.Light(ctx, end.want, running, p.have, p.onDisk)
		}
		end.err = withoutSecrets(end.err, end.want, running)
		end.change = changeOf(good, end.want, end.done.Reloaded)
	}
	endJob(p.span, end.done.Reloaded, end.err)
	end.took = time.Since(began)
	send(end)
}

func (p pushSnapshot) String() string {
	return p.describe("push", "snapshot", p.push.Snapshot, "why", string(p.push.Purpose))
}

// updateWorker changes servers and certificates in the running worker.
type updateWorker struct {
	remote
	want  push.Wanted // without what binds
	whole toBind
	have  push.Running
	span  trace.Span
}

func (u updateWorker) run(ctx context.Context, send func(event)) {
	ctx, cancel := u.within(trace.ContextWithSpan(ctx, u.span), u.limit)
	defer cancel()
	began := time.Now()
	var bound bind.Bound // if it was needed
	u.want.Bind = func() (_ bind.Bound, err error) {
		bound, err = u.whole.bind()
		return bound, err
	}
	have, err := u.target.Update(ctx, u.want, u.have)
	err = withoutSecrets(err, bound)
	endJob(u.span, have.Reloaded, err)
	send(updateEnded{of: u.of, node: u.want.Node, began: began, had: u.have, have: have, err: err})
}

func (u updateWorker) String() string { return u.describe("update", "node", u.want.Node) }

// persistServers writes to disk what the worker is to have, and brings the worker to it.
type persistServers struct {
	remote
	want toBind
	have push.Running
}

func (p persistServers) run(ctx context.Context, send func(event)) {
	ctx, cancel := p.within(ctx, p.limit)
	defer cancel()
	began := time.Now()
	have := p.have
	want, err := p.want.bind()
	if err == nil {
		have, err = p.target.Settle(ctx, want, have)
		if errors.Is(err, dataplane.ErrValidation) { // a file that it names may have been taken away
			if _, mendErr := p.target.Mend(ctx, want, p.onDisk); mendErr == nil {
				have, err = p.target.Settle(ctx, want, have)
			}
		}
		err = withoutSecrets(err, want)
	}
	send(persistEnded{p.of, have, time.Since(began), err})
}

func (p persistServers) String() string { return p.describe("persist", "snapshot", p.want.id) }

// tidyWorker deletes dynamic servers that the worker no longer needs.
type tidyWorker struct {
	remote
	have push.Running
}

func (t tidyWorker) run(ctx context.Context, send func(event)) {
	ctx, cancel := t.within(ctx, t.limit)
	defer cancel()
	have, err := t.target.Tidy(ctx, t.have)
	send(tidyEnded{t.of, have, err})
}

func (t tidyWorker) String() string { return t.describe("tidy") }

// collectFiles removes files that no snapshot in use needs.
type collectFiles struct {
	remote
	garbage []push.Stored
}

func (c collectFiles) run(ctx context.Context, send func(event)) {
	ctx, cancel := c.within(ctx, collectTimeout)
	defer cancel()
	removed, err := c.target.Remove(ctx, c.garbage)
	send(collectEnded{c.of, c.garbage, removed, err})
}

func (c collectFiles) String() string { return c.describe("collect", "files", len(c.garbage)) }

// inspectInstance compares an instance with what was left on it.
type inspectInstance struct {
	remote
	want  toBind
	have  push.Running
	round int
}

func (i inspectInstance) run(ctx context.Context, send func(event)) {
	ctx, cancel := i.within(ctx, i.limit)
	defer cancel()
	found := push.Inspection{Running: i.have}
	want, err := i.want.bind()
	if err == nil {
		found, err = i.target.Inspect(ctx, want, i.have, i.round)
		err = withoutSecrets(err, want)
	}
	if errors.Is(err, push.ErrElsewhere) {
		err = nil // it was reloaded meanwhile, and is looked at again
		found = push.Inspection{Running: i.have}
	}
	send(inspectEnded{i.of, i.have, found, i.want, err})
}

func (i inspectInstance) String() string { return i.describe("inspect", "round", i.round) }

// mendFiles puts files back.
type mendFiles struct {
	remote
	want toBind
}

func (m mendFiles) run(ctx context.Context, send func(event)) {
	ctx, cancel := m.within(ctx, m.limit)
	defer cancel()
	want, err := m.want.bind()
	var disk push.Digest
	if err == nil {
		disk, err = m.target.Mend(ctx, want, m.onDisk)
		err = withoutSecrets(err, want)
	}
	send(mendEnded{m.of, disk, want.Servers, err})
}

func (m mendFiles) String() string { return m.describe("mend", "snapshot", m.want.id) }

// sampleStatistics asks an instance for the statistics of its worker.
type sampleStatistics struct {
	remote
	ignore []string
	at     time.Time
}

func (s sampleStatistics) run(ctx context.Context, send func(event)) {
	found, err := sample(ctx, s.client, s.ignore, s.at)
	send(sampled{s.of, found, err})
}

func (s sampleStatistics) String() string { return s.describe("sample") }
