package controller

import (
	"context"
	"errors"
	"io/fs"
	"slices"
	"time"

	"github.com/hapsnap/hapsnap/compiler"
	"github.com/hapsnap/hapsnap/compiler/config"
	"github.com/hapsnap/hapsnap/compiler/diag"
	"github.com/hapsnap/hapsnap/compiler/gateway"
	"github.com/hapsnap/hapsnap/compiler/inputs"
	"github.com/hapsnap/hapsnap/compiler/render"
	"github.com/hapsnap/hapsnap/snapshots"
	"github.com/hapsnap/hapsnap/snapshots/channel"
)

// store is what the compiler needs of a snapshot store. It cannot delete, and
// cannot touch the channel.
type store interface {
	// Publish numbers a draft and keeps it. A draft with the digest of the
	// head is not written: then published is false.
	Publish(ctx context.Context, d snapshots.Draft) (id snapshots.ID, published bool, err error)
	// IDs returns those of all snapshots, the newest last. What people say in the
	// channel, and whether it can be read, does not concern the compiler.
	IDs(ctx context.Context) ([]snapshots.ID, error)
	Get(ctx context.Context, id snapshots.ID) (snapshots.Snapshot, error)
}

// Publish publishes a result to a store once, with a subject that says what it changes. If
// the guard holds it, the error is a [*ShrinkError].
func Publish(ctx context.Context, s store, r compiler.Result, g config.ShrinkGuard) (id snapshots.ID, published bool, err error) {
	previous, newest, err := head(ctx, s, snapshots.Snapshot{})
	if err != nil {
		return snapshots.ID{}, false, err
	}
	if err := guard(previous, r.Draft, g); err != nil {
		return snapshots.ID{}, false, err
	}
	r.Draft.Subject, r.Draft.After = compiler.Subject(previous, r), &newest
	return s.Publish(ctx, r.Draft.WithSealed(previous))
}

// maxCorrupt is how many corrupt snapshots are skipped to find one that can be read.
const maxCorrupt = 20

// head returns the newest snapshot of a store that can be read, zero for none, and the
// name of the newest, which the next one follows; known is what the former was before. A
// directory that is not there is made when something is published: until then the newest
// is what is known.
//
// A newest snapshot that is corrupt must not keep a good one from being published, and
// must not disable the guard against mass losses either, which compares numbers with the
// snapshot before. The newest that can be read stands in for it: it is what instances run
// at best, since they take none that is corrupt. If there is none, the guard has nothing
// to compare with, as in an empty store.
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

// leader reports whether this process is the one that publishes.
type leader interface {
	// Term returns a context that ends when this process ceases to lead, and
	// false if it does not lead. Until end is called, nobody else is let to lead
	// of our own accord.
	Term(ctx context.Context) (during context.Context, end context.CancelFunc, leading bool)
	// Changed receives when this process may have begun or ceased to lead.
	Changed() <-chan struct{}
}

// alone is the leader where there is one process only.
type alone struct{}

func (alone) Term(ctx context.Context) (context.Context, context.CancelFunc, bool) {
	return ctx, func() {}, true
}

func (alone) Changed() <-chan struct{} { return nil }

// headInterval is how often a leader looks whether the store still holds what it
// published. What a former leader sent before its term ended, and which arrives
// later, can change that, and so can another compiler for the same store.
const headInterval = 30 * time.Second

// elected finds out whether this process leads. One that begins to publishes the
// draft that it has ready. If that was published in an earlier term, others may
// have been leading since: it compiles again, and publishes if that is not the
// head.
func (l *loop) elected(ctx context.Context, now time.Time) {
	_, end, leading := l.Leader.Term(ctx)
	end()
	l.leads = leading
	l.Status.leads(leading)
	_, only := l.Leader.(alone)
	l.verify = now.Add(headInterval)
	l.rivals.term(!only)
	l.Status.rival(nil, now)
	l.metrics.rivals.Set(0)
	switch {
	case leading && l.pending != nil:
		l.republish.now(now)
	case leading:
		l.debounce.change(now)
	}
}

// publishWhileLeading publishes what is pending, unless this process does not
// lead any more. What was begun is abandoned when it ceases to.
func (l *loop) publishWhileLeading(ctx context.Context) {
	during, end, leading := l.Leader.Term(ctx)
	defer end()
	if !leading {
		l.leads = false
		l.Status.leads(false)
		return
	}
	l.publish(during)
}

// verifyHead looks who made the store's newest snapshot, if it is not the one that was
// published last, and then compiles again. A process that nobody elected only looks: a person may
// have published that snapshot, and nobody can have sent it late.
func (l *loop) verifyHead(ctx context.Context) {
	l.verify = time.Now().Add(headInterval)
	ids, err := l.Store.IDs(ctx)
	newest := newestOf(ids)
	if err != nil || newest == l.Status.Head() {
		return
	}
	if !l.rivals.ours.IsZero() && newest != l.rivals.seen {
		if head, err := l.Store.Get(ctx, newest); err == nil {
			l.meet(head, time.Now())
		}
	}
	if _, only := l.Leader.(alone); only || l.Status.Ready() != nil || l.pending != nil {
		return
	}
	l.Log.Warn("the newest snapshot of the store is not the one that was published, compiling again", "snapshot", newest.String(), "published", l.Status.Head().String())
	l.debounce.change(time.Now())
}

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

// announcer writes Events and statuses of a cluster's objects. Both calls return at once.
// The announcer writes nothing while another process leads.
type announcer interface {
	// Compiled says what was found by a compile of the objects.
	Compiled(in inputs.Inputs, found []diag.Diagnostic)
	// Published says which Ingresses the store's newest snapshot has lines of.
	Published(in inputs.Inputs, served map[diag.Object]bool, c config.IngressStatus)
	// Gateways says what the status of objects of the Gateway API is to say, now that the
	// store's newest snapshot was made of them.
	Gateways(in inputs.Inputs, c config.Config, said gateway.Verdicts, head snapshots.ID)
}

// served returns the Ingresses that an artifact has lines of, be it one that keeps
// their routes closed: requests for them are answered here.
func served(a render.Artifact) map[diag.Object]bool {
	out := map[diag.Object]bool{}
	for _, lines := range a.Origins {
		for _, line := range lines {
			for _, o := range line.Objects {
				if o.Object.Kind == "Ingress" && o.Object.APIVersion == "" {
					out[o.Object] = true
				}
			}
		}
	}
	return out
}
