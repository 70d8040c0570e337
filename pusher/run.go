package pusher

import (
	"context"
	"errors"
	"time"

	"github.com/hapsnap/hapsnap/pusher/fleet"
	"github.com/hapsnap/hapsnap/pusher/push"
	"github.com/hapsnap/hapsnap/pusher/statestore"
)

// Run pushes until ctx is done, and then returns nil; an error says that it could
// not begin. All that it started has ended when it returns.
func Run(ctx context.Context, o Options) error {
	o = o.withDefaults()
	if o.Leader == nil {
		return lead(ctx, o)
	}
	c := candidate{Options: o, troubles: map[string]Trouble{}}
	return c.run(ctx)
}

// lead is Run of the pusher that pushes. Its error may also say that another one has
// taken its place.
func lead(ctx context.Context, o Options) error {
	ctx, end := context.WithCancelCause(ctx)
	defer end(nil)
	keeper := o.keeper()
	defer keeper.Release()
	now := time.Now()
	taken, err := keeper.Take(ctx, newFallback(now))
	if err != nil {
		return err
	}
	s, err := parseState(taken.State, keeper.String())
	if err != nil {
		return err
	}
	instances, err := fleet.Read(o.Fleet)
	if err != nil {
		return err
	}
	if s.ID == "" {
		s.ID = newStateID()
		if err := s.save(ctx, keeper); err != nil {
			o.Log.Warn("id of a new state not saved yet", "state", keeper.String(), "err", err)
		}
	}
	remember(o.Store, s.Seen)
	e := newEngine(o, s, taken.Fallback, now)
	e.keeper, e.leadership = keeper, newLeadership(taken.Term, end, func() error { return leads(ctx, o.Leader) })
	e.leadership.fence.Sign(push.Pusher{State: s.ID, Place: place(keeper)}, o.TakeOver)
	e.run(ctx, instances, now)
	if err := context.Cause(ctx); errors.Is(err, statestore.ErrTaken) {
		return err
	}
	return nil
}

// leads returns why this pusher may not act right now, or nil.
func leads(ctx context.Context, l Leader) error {
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	if l == nil {
		return nil
	}
	return l.Leads()
}
