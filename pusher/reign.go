package pusher

import (
	"context"
	"errors"

	"github.com/hapsnap/hapsnap/pusher/dataplane"
	"github.com/hapsnap/hapsnap/pusher/push"
)

const (
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

// newReign begins to lead in a term, 0 where there are none, until end is called or leads
// returns an error.
func newReign(term int64, end context.CancelCauseFunc, leads func() error) reign {
	return reign{term: term, end: end, fence: push.NewFence(term, leads)}
}

// lose ends it.
func (r *reign) lose(why error) {
	if r.end != nil {
		r.end(why)
	}
}

// around puts the fence before the API of an instance.
func (r *reign) around(client *dataplane.Client, record *push.Record) push.API {
	if r.fence == nil {
		return client
	}
	return r.fence.Around(client, record)
}

// leader names who leads.
func (e *engine) leader() string {
	if e.Leader == nil {
		return ""
	}
	return e.Leader.Holder()
}

// outranked sees to an instance on which a later term was found. Either another pusher
// leads by now; or the state, which this one still has, was made anew after that term.
// Then the term is raised. It returns false where that is not tried.
func (e *engine) outranked(i *instance, err error) bool {
	by, ok := errors.AsType[push.OutrankedError](err)
	if !ok || by.By <= e.reign.term || e.reign.raised >= maxRaises {
		return false
	}
	if r := e.saves.raise; r == nil || by.By > r.above {
		e.saves.raise = &raising{e.keeper, by.By, i}
	}
	return true
}
