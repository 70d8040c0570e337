package controller

import (
	"context"
	"errors"
	"io/fs"
	"log/slog"
	"slices"
	"sync/atomic"
	"time"

	"github.com/hapsnap/hapsnap/compiler"
	"github.com/hapsnap/hapsnap/compiler/config"
	"github.com/hapsnap/hapsnap/compiler/diag"
	"github.com/hapsnap/hapsnap/compiler/gateway"
	"github.com/hapsnap/hapsnap/compiler/inputs"
	"github.com/hapsnap/hapsnap/compiler/render"
	"github.com/hapsnap/hapsnap/compiler/routing"
	"github.com/hapsnap/hapsnap/internal/process"
	"github.com/hapsnap/hapsnap/snapshots"
	"github.com/hapsnap/hapsnap/snapshots/channel"
)

// store is what the compiler needs of a snapshot store. It cannot delete snapshots or change the channel.
type store interface {
	// Publish numbers a draft and keeps it. A draft with the digest of the
	// head is not written: then published is false.
	Publish(ctx context.Context, d snapshots.Draft) (id snapshots.ID, published bool, err error)
	// IDs returns the IDs of all snapshots, the newest last. The compiler does not read the channel.
	IDs(ctx context.Context) ([]snapshots.ID, error)
	Get(ctx context.Context, id snapshots.ID) (snapshots.Snapshot, error)
}

// silence is how long a store may take for an answer before that is reported. Where nothing listens behind an address, it
// takes the store two minutes to give up.
const silence = 10 * time.Second

// attended is a store that reports when an answer takes long. The loop waits for the answer, and does nothing else.
type attended struct {
	store
	log    *slog.Logger
	status *Status
	within time.Duration
	silent atomic.Bool // this was logged
}

func (a *attended) Publish(ctx context.Context, d snapshots.Draft) (id snapshots.ID, published bool, err error) {
	defer a.asks("publish a snapshot", &err)()
	return a.store.Publish(ctx, d)
}

func (a *attended) IDs(ctx context.Context) (ids []snapshots.ID, err error) {
	defer a.asks("list its snapshots", &err)()
	return a.store.IDs(ctx)
}

func (a *attended) Get(ctx context.Context, id snapshots.ID) (s snapshots.Snapshot, err error) {
	defer a.asks("read "+id.String(), &err)()
	return a.store.Get(ctx, id)
}

// asks notes that the store was asked to do something. The function that it returns notes the answer.
func (a *attended) asks(what string, err *error) (answered func()) {
	since := time.Now()
	a.status.asked(&AskReport{To: what, Since: since})
	late := time.AfterFunc(a.within, func() {
		if !a.silent.Swap(true) {
			a.log.Warn("the store does not answer, and nothing is compiled or published until it does, or is given up",
				"asked", "to "+what, "since", since.UTC().Format(time.RFC3339), "hint", "see whether its server hangs, or a firewall drops what is sent to it")
		}
	})
	return func() {
		a.status.asked(nil)
		if late.Stop() && *err == nil && a.silent.Swap(false) {
			a.log.Info("the store answers again")
		}
	}
}

// Publish publishes a result to a store once, with a subject that says what it changes. If the guard holds it back, the
// error is a [*ShrinkError]. [Run] does the same with [loop.publish], which also yields to other compilers.
func Publish(ctx context.Context, s store, r compiler.Result, g config.ShrinkGuard) (id snapshots.ID, published bool, err error) {
	previous, newest, err := head(ctx, s, snapshots.Snapshot{})
	if err != nil {
		return snapshots.ID{}, false, err
	}
	return publishAfter(ctx, s, previous, newest, &r, g, &shrinkGuard{})
}

// publishAfter publishes a draft unless the guard holds it back, and completes it for that. Previous and newest are what
// [head] returned.
func publishAfter(ctx context.Context, s store, previous snapshots.Snapshot, newest snapshots.ID, r *compiler.Result, g config.ShrinkGuard, known *shrinkGuard) (id snapshots.ID, published bool, err error) {
	if err := known.check(previous, r, g); err != nil {
		return snapshots.ID{}, false, err
	}
	r.Draft.Subject, r.Draft.After = compiler.Subject(previous, *r), &newest
	r.Draft = r.Draft.WithSealed(previous)
	return s.Publish(ctx, r.Draft)
}

// publish publishes the pending draft, or keeps it and says when to try again.
func (l *loop) publish(ctx context.Context) {
	within, end := l.timeline.Stage(l.timeline.Within(ctx), compiler.StagePublish)
	r := *l.pending
	draft := &r.Draft
	l.timeline.Sign(draft)
	id, published, err := l.publishOnHead(within, &r)
	end(err)
	if ctx.Err() != nil {
		return
	}
	l.metrics.spent(l.timeline.spent())
	if shrunk, ok := errors.AsType[*ShrinkError](err); ok {
		// The pending draft is kept until it is approved, or until the head of the store changes. Each draft is
		// reported once.
		if l.held == nil || *l.held != *shrunk {
			l.Log.Error("snapshot held back, the published one stays", "lost", shrunk.Lost, "since", shrunk.Head.String(), "digest", shrunk.Digest.Short(), "hint", shrunk.Approval())
			l.metrics.heldDraft()
		}
		l.held = shrunk
		l.Status.published(l.previous, shrunk, time.Now())
		l.republish.later(time.Now())
		return
	}
	if rival, ok := errors.AsType[*RivalError](err); ok {
		l.Status.published(l.previous, err, time.Now())
		l.Log.Warn("snapshot not published, another compiler goes first", "digest", draft.Digest().Short(), "machine", rival.Machine, "until", rival.Until.UTC().Format(time.RFC3339))
		l.republish = retry{at: rival.Until}
		return
	}
	if l.moved(err) {
		return
	}
	l.metrics.published(published, err, time.Now())
	if err == nil && l.previous.ID() != id {
		l.previous = draft.Number(id.Revision, l.previous.ID())
	}
	l.Status.published(l.previous, err, time.Now())
	if err != nil {
		l.republish.fail(time.Now())
		l.Log.Error("snapshot not published, keeping it and trying again", append([]any{"err", err, "in", l.republish.wait}, hintOf(err)...)...)
		return
	}
	l.rivals.ours = id
	if len(l.losses.let) > 0 {
		l.Log.Warn("most of what one namespace or a few had is gone, and published without it, since their objects were deleted or are left out",
			"namespaces", l.losses.let, "lost", l.losses.letLost, "quarantined", leftOutOf(*draft, l.losses.let), "snapshot", id.String())
	}
	l.losses.published(id, draft.Provenance.TemplatesDigest, r.Artifact, l.SeesDeletions)
	l.timeline.Published(id, *draft, published)
	if published {
		l.Log.Info("snapshot published", "snapshot", id.String(), "subject", draft.Subject, "quarantined", len(draft.Quarantined))
	}
	if l.Announcer != nil {
		l.Announcer.Published(l.from, served(l.pending.Artifact), l.Source.Config.IngressStatus)
		l.Announcer.Gateways(l.from, l.Source.Config, l.pending.Verdicts, id)
	}
	l.pending, l.held = nil, nil
	l.republish.reset()
}

// hintOf returns the hint of an error for a line of the log, if there is one.
func hintOf(err error) []any {
	if hint := process.Hint(err); hint != "" {
		return []any{"hint", hint}
	}
	return nil
}

// publishOnHead publishes a draft on top of the store's newest snapshot, unless another compiler goes first or the guard
// holds it back. It completes the draft.
//
// The newest snapshot is taken to be the one that it was last. The store refuses the draft if that is no longer so; then,
// and while anything keeps drafts back, the store is asked first. So the store's snapshots are not listed for each publish.
func (l *loop) publishOnHead(ctx context.Context, r *compiler.Result) (id snapshots.ID, published bool, err error) {
	if known := l.previous; !known.ID().IsZero() && l.held == nil && l.rivals.current == nil {
		attempt := *r
		id, published, err = l.publishOn(ctx, known, known.ID(), &attempt)
		_, shrunk := errors.AsType[*ShrinkError](err)
		switch {
		case errors.Is(err, snapshots.ErrMoved), shrunk, err == nil && !published && id != known.ID():
			// It depends on a snapshot that this process does not know.
		default:
			*r = attempt
			return id, published, err
		}
	}
	previous, newest, err := head(ctx, l.Store, l.previous)
	if err != nil {
		return snapshots.ID{}, false, err
	}
	return l.publishOn(ctx, previous, newest, r)
}

// publishOn is publishOnHead for what [head] returned.
func (l *loop) publishOn(ctx context.Context, previous snapshots.Snapshot, newest snapshots.ID, r *compiler.Result) (id snapshots.ID, published bool, err error) {
	l.observeHead(previous, time.Now())
	l.previous = previous
	if err := l.yields(previous, r.Draft); err != nil {
		return snapshots.ID{}, false, err
	}
	r.Draft.Provenance.Trigger = l.rivals.own.trigger(r.Draft.Provenance.Trigger)
	return publishAfter(ctx, l.Store, previous, newest, r, l.Source.Config.ShrinkGuard, &l.losses)
}

// maxCorrupt is how many corrupt snapshots are skipped to find one that can be read.
const maxCorrupt = 20

// head returns the newest snapshot of a store that can be read, or zero, and the ID of the newest snapshot, which the next
// one follows. Known is the snapshot that an earlier call returned; it is not read again. If the directory of the store
// does not exist, head returns known: publishing makes the directory.
//
// A corrupt newest snapshot must not prevent publishing. It must not disable the guard against mass losses either, which
// compares numbers with the snapshot before. So the guard compares with the newest snapshot that can be read: instances
// run that one at best, since they refuse corrupt ones. If there is none, the guard has nothing to compare with, as in an
// empty store.
func head(ctx context.Context, s store, known snapshots.Snapshot) (snapshots.Snapshot, snapshots.ID, error) {
	ids, err := s.IDs(ctx)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return known, known.ID(), nil
	case err != nil:
		return known, known.ID(), err
	}
	for n, id := range slices.Backward(ids) {
		if id == known.ID() {
			return known, newestOf(ids), nil
		}
		snapshot, err := s.Get(ctx, id)
		if !errors.Is(err, snapshots.ErrCorrupt) {
			return snapshot, newestOf(ids), err
		}
		if len(ids)-n == maxCorrupt {
			break
		}
	}
	return snapshots.Snapshot{}, newestOf(ids), nil
}

// newestOf returns the newest of snapshots, the zero ID of none.
func newestOf(ids []snapshots.ID) snapshots.ID { return channel.View{IDs: ids}.Head() }

// moved notes that somebody else published a snapshot since the last look: another leader,
// or a person.
func (l *loop) moved(err error) bool {
	if !errors.Is(err, snapshots.ErrMoved) {
		return false
	}
	l.republish.fail(time.Now())
	l.Log.Info("the newest snapshot of the store changed meanwhile, trying again", "err", err, "in", l.republish.wait)
	return true
}

// announcer writes Events and statuses of a cluster's objects. Its methods return at once. It writes nothing while
// another process leads.
type announcer interface {
	// Compiled takes what a compile found about the objects.
	Compiled(in inputs.Inputs, found []diag.Diagnostic)
	// Published takes the Ingresses that the store's newest snapshot has lines of.
	Published(in inputs.Inputs, served map[diag.Object]bool, c config.IngressStatus)
	// Gateways takes what the status of objects of the Gateway API should say, now that the store's newest snapshot
	// contains them.
	Gateways(in inputs.Inputs, c config.Config, said gateway.Verdicts, head snapshots.ID)
}

// served returns the Ingresses that an artifact has lines of. Ingresses with closed routes are among them: this HAProxy
// answers their requests.
func served(a render.Artifact) map[diag.Object]bool {
	out := map[diag.Object]bool{}
	var before []routing.Origin
	for _, lines := range a.Origins {
		for _, line := range lines {
			if len(line.Objects) == 0 || len(before) == len(line.Objects) && &before[0] == &line.Objects[0] {
				continue // most lines share their objects with the line before
			}
			before = line.Objects
			for _, o := range before {
				if o.Object.Kind == "Ingress" && o.Object.APIVersion == "" {
					out[o.Object] = true
				}
			}
		}
	}
	return out
}
