package compiler

import (
	"context"
	"errors"
	"time"

	"github.com/hapsnap/hapsnap/snapshots"
)

// leader says whether this process is the one that publishes.
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
// later, is all that can change that.
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
	if _, only := l.Leader.(alone); !only {
		l.verify = now.Add(headInterval)
	}
	switch {
	case leading && l.pending != nil:
		l.republish.now(now)
	case leading:
		l.debounce.change(now)
	}
}

// publishDue reports whether the pending draft is to be published now.
func (l *loop) publishDue(now time.Time) bool {
	return l.leads && l.pending != nil && due(l.republish.at, now)
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

// verifyHead compiles again if the store's newest snapshot is not the one that
// was published last.
func (l *loop) verifyHead(ctx context.Context) {
	l.verify = time.Now().Add(headInterval)
	ids, err := l.Store.IDs(ctx)
	if err != nil || l.Status.Ready() != nil || l.pending != nil || newestOf(ids) == l.Status.Head() {
		return
	}
	l.Log.Warn("the store holds another snapshot than was published, compiling again", "snapshot", newestOf(ids).String(), "published", l.Status.Head().String())
	l.debounce.change(time.Now())
}

// moved takes note that another snapshot was published since we looked, by
// another leader or by hand.
func (l *loop) moved(err error) bool {
	if !errors.Is(err, snapshots.ErrMoved) {
		return false
	}
	l.republish.fail(time.Now())
	l.Log.Info("the store has another snapshot than a moment ago, looking again", "err", err, "in", l.republish.wait)
	return true
}
