package pusher

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/hapsnap/hapsnap/internal/manifests"
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
	e.keeper, e.reign = keeper, newReign(taken.Term, end, func() error { return leads(ctx, o.Leader) })
	e.reign.fence.Sign(push.Pusher{State: s.ID, Place: place(keeper)}, o.TakeOver)
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

// run begins with the instances, and goes on until ctx is done and all that it started
// has ended.
func (e *engine) run(ctx context.Context, instances fleet.Fleet, now time.Time) {
	ctx, cancel := context.WithCancel(ctx)
	if e.library.dir != "" {
		removeTemporaries(e.library.dir, temporaryAge, "*.json")
	}
	e.takeFleet(ctx, instances, nil, now)
	e.start(func() { e.watchFleet(ctx, instances.Files) })
	e.start(func() { e.watchStore(ctx) })
	switch e.endpointsFrom() {
	case fromSnapshots:
	case fromCluster:
		e.start(func() { e.Cluster.Run(ctx) })
		e.start(func() { e.watchCluster(ctx) })
	case fromDirectory:
		e.start(func() {
			watchLive(ctx, e.Live, e.Log, func(read liveData, err error) {
				e.send(ctx, func(now time.Time) { e.takeLive(read, err, now) })
			})
		})
	}
	if e.Events != nil {
		e.start(func() { e.Events.Run(ctx) })
	}
	if e.announcer != nil {
		e.start(func() { e.announcer.run(ctx) })
	}
	e.loop(ctx)
	cancel()
	e.finish()
}

// finish waits for the jobs, which end as their context did, and saves what they
// had to say.
func (e *engine) finish() {
	ended := make(chan struct{})
	go func() {
		e.jobs.Wait()
		close(ended)
	}()
	for {
		select {
		case event := <-e.events:
			event(time.Now())
		case <-ended:
			e.drainEvents()
			e.traces.end("interrupted", nil)
			_ = e.save(time.Now()) // noted as trouble, and there is nobody left to tell
			return
		}
	}
}

// watchFleet reads the fleet's file again when it or a password file changes.
func (e *engine) watchFleet(ctx context.Context, files []string) {
	for ctx.Err() == nil {
		watching, cancel := context.WithCancel(ctx)
		changed := manifests.Watch(watching, files, e.Log)
		for watched := files; slices.Equal(watched, files); {
			// What changed before the watch began is seen now.
			f, err := fleet.Read(e.Fleet)
			e.send(ctx, func(now time.Time) { e.takeFleet(ctx, f, err, now) })
			if len(f.Files) > 0 {
				files = f.Files
			}
			select {
			case <-ctx.Done():
				cancel()
				return
			case <-changed:
			}
		}
		cancel()
	}
}

// follower is a store that tells when it may have changed.
type follower interface {
	// Follow calls changed after each change, until ctx is done.
	Follow(ctx context.Context, changed func())
}

// calm is how long the store is left alone after a change: what is published in
// pieces is one.
const calm = 100 * time.Millisecond

// watchStore looks into the store again and again, and whenever it may have changed,
// where it tells.
func (e *engine) watchStore(ctx context.Context) {
	changed := make(chan struct{}, 1)
	if s, ok := e.Store.(follower); ok {
		e.start(func() {
			s.Follow(ctx, func() {
				select {
				case changed <- struct{}{}:
				default:
				}
			})
		})
	}
	ticker := time.NewTicker(e.PollInterval)
	defer ticker.Stop()
	for {
		once, cancel := context.WithTimeout(ctx, viewTimeout)
		view, err := e.Store.View(once)
		cancel()
		if ctx.Err() != nil {
			return
		}
		e.send(ctx, func(now time.Time) { e.takeView(view, err, now) })
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
			continue
		case <-changed:
		}
		select {
		case <-ctx.Done():
			return
		case <-time.After(calm):
		}
	}
}
