package pusher

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/hapsnap/hapsnap/pusher/dataplane"
	"github.com/hapsnap/hapsnap/pusher/push"
	"github.com/hapsnap/hapsnap/pusher/statestore"
)

// workClaim writes the term of a new leader to an instance's disk.
const workClaim work = "claim"

const (
	// claimRetry is the wait after an instance could not be claimed.
	claimRetry = 10 * time.Second
	// maxRaises bounds how often the term is raised above that of others: whoever keeps
	// writing higher ones has a state of its own, and is not a former leader.
	maxRaises = 3
)

// reign is the time in which this pusher leads. The zero reign is that of one that has no
// others beside it.
type reign struct {
	term   int64
	fence  *push.Fence
	end    context.CancelCauseFunc
	raised int
}

// newReign begins to lead in a term, until end is called or leads returns an error.
func newReign(term int64, end context.CancelCauseFunc, leads func() error) reign {
	r := reign{term: term, end: end}
	if term > 0 {
		r.fence = push.NewFence(term, leads)
	}
	return r
}

// lose ends it.
func (r *reign) lose(why error) {
	if r.end != nil {
		r.end(why)
	}
}

// around puts the fence before the API of an instance.
func (r *reign) around(client *dataplane.Client) push.API {
	if r.fence == nil {
		return client
	}
	return r.fence.Around(client)
}

// leader names who leads.
func (e *engine) leader() string {
	if e.Leader == nil {
		return ""
	}
	return e.Leader.Holder()
}

// unclaimed reports whether an instance is to be claimed now.
func (e *engine) unclaimed(i *instance, now time.Time) bool {
	return e.reign.fence != nil && i.claimed != e.reign.term && i.busy == "" && i.reachable() && !now.Before(i.claimAfter)
}

// claim writes the term to an instance's disk. Pushes do so as well; but where nothing is
// to be pushed, a former leader that was paused in the middle of a push could go on.
func (e *engine) claim(ctx context.Context, i *instance) {
	term, fence := e.reign.term, e.reign.fence
	i.begin(workClaim)
	e.startOn(ctx, i, func(ctx context.Context) {
		ctx, cancel := context.WithTimeout(ctx, e.ReloadTimeout)
		defer cancel()
		err := fence.Claim(ctx, i.client)
		e.send(context.WithoutCancel(ctx), func(now time.Time) { e.claimedOr(i, term, err, now) })
	})
}

// claimedOr takes the end of a claim. One that failed keeps nothing else from being done.
func (e *engine) claimedOr(i *instance, term int64, err error, now time.Time) {
	i.busy, i.ended = "", now
	if current := e.instances[i.Name]; current != nil && current != i && current.UID == i.UID {
		current.busy = ""
	}
	if errors.Is(err, context.Canceled) {
		return // the process, or the term, is about to end
	}
	e.metrics.worked(workClaim, err)
	if i.claimFailed {
		i.jobError, i.jobErrorAt, i.claimFailed = "", time.Time{}, false
	}
	if err == nil {
		i.claimed = term
		return
	}
	i.claimAfter = now.Add(claimRetry)
	e.logger(i.Name).Warn("instance not claimed", "term", term, "err", err)
	if !e.outranked(i, err, now) {
		i.jobError, i.jobErrorAt, i.claimFailed = err.Error(), now, true
	}
}

// outranked sees to an instance on which a later term was found. Either another pusher
// leads by now; or the state, which this one still has, was made anew after that term.
// Then it returns true, and the term is a higher one.
func (e *engine) outranked(i *instance, err error, now time.Time) (raised bool) {
	by, ok := errors.AsType[push.OutrankedError](err)
	if !ok || by.By <= e.reign.term || e.reign.raised >= maxRaises {
		return false
	}
	ctx, cancel := context.WithTimeout(context.Background(), saveTimeout)
	defer cancel()
	term, err := e.keeper.Raise(ctx, by.By)
	if err != nil {
		e.trouble("state", err, now)
		if errors.Is(err, statestore.ErrTaken) {
			e.reign.lose(fmt.Errorf("instance %s is of term %d: %w", i.Name, by.By, err))
		}
		return false
	}
	e.Log.Warn("term raised above one that was met", "instance", i.Name, "met", by.By, "term", term)
	e.reign.raised++
	e.reign.term = term
	e.reign.fence.Raise(term)
	i.claimAfter = now
	e.dirty = true
	return true
}
