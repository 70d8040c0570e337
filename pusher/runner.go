package pusher

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"sync"
	"time"

	"github.com/hapsnap/hapsnap/pusher/binding"

	"github.com/hapsnap/hapsnap/pusher/fleet"
	"github.com/hapsnap/hapsnap/pusher/observe"
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
	c := candidate{Options: o, troubles: observe.Troubles{}}
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
	if taken.Unmoved != nil {
		o.Log.Error("the key of the fallback certificate stays in the Secret of the state", "state", keeper.String(), "err", taken.Unmoved)
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
	if o.EventLog != "" {
		file := newEventFile(o.EventLog, o.Log)
		defer file.start()()
		o.eventsTo = file.write
	}
	e := newEngine(o, s, taken.Fallback, now)
	e.services.keeper = keeper
	fence := push.NewFence(taken.Term, func() error { return leads(ctx, o.Leader) })
	fence.Sign(push.Pusher{State: s.ID, Place: place(keeper)}, o.TakeOver)
	e.lead(taken.Term, fence, end)
	e.run(ctx, instances)
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

// This file has all goroutines of the pusher: the loop, which alone touches the engine,
// effects, and sources, which watch something for as long as the pusher runs.

// inbox is where events come in, and what sends them.
type inbox struct {
	events chan Event
	jobs   *sync.WaitGroup // effects and sources that have not ended
}

func newInbox() inbox { return inbox{events: make(chan Event, 64), jobs: new(sync.WaitGroup)} }

// start runs a job in a goroutine of its own.
func (b inbox) start(job func()) {
	b.jobs.Add(1)
	go func() {
		defer b.jobs.Done()
		job()
	}()
}

// send gives the engine an event, whatever happened to the pusher meanwhile: the end of an
// effect is taken until all of them have ended.
func (b inbox) send(ev Event) { b.events <- ev }

// sendUntil gives the engine an event, unless ctx is done.
func (b inbox) sendUntil(ctx context.Context, ev Event) {
	select {
	case b.events <- ev:
	case <-ctx.Done():
	}
}

// lastLines is how long a pusher that ends waits for its event log to be written.
const lastLines = 2 * time.Second

// start begins to write an event log, until the function is called that it returns.
func (f *eventFile) start() (end func()) {
	written := make(chan struct{})
	go func() {
		defer close(written)
		f.run()
	}()
	return func() {
		close(f.lines)
		select {
		case <-written:
		case <-time.After(lastLines):
		}
	}
}

// startEffects has what was decided carried out.
func (e *engine) startEffects(ctx context.Context) {
	for _, x := range e.effects {
		if run := e.services.job(ctx, x); run != nil {
			e.inbox.start(func() { run(ctx, e.inbox.send) })
		}
	}
	clear(e.effects)
	e.effects = e.effects[:0]
}

// tellPeople tells what has happened since it was told last.
func (e *engine) tellPeople() {
	e.services.observer.Tell(e.facts...)
	clear(e.facts)
	e.facts = e.facts[:0]
}

// run begins with the instances, and goes on until ctx is done and all that it started
// has ended.
func (e *engine) run(ctx context.Context, instances fleet.Fleet) {
	ctx, cancel := context.WithCancel(ctx)
	if e.cache() != "" {
		removeTemporaries(e.cache(), temporaryAge, "*.json")
	}
	e.take(FleetRead{instances, nil}, time.Now())
	e.inbox.start(func() { e.inbox.watchFleet(ctx, e.Options, instances.Files) })
	e.inbox.start(func() { e.inbox.watchStore(ctx, e.Options) })
	switch e.endpointsFrom() {
	case binding.FromSnapshots:
	case binding.FromCluster:
		e.inbox.start(func() { e.Cluster.Run(ctx) })
		e.inbox.start(func() { e.inbox.watchCluster(ctx, e.Cluster) })
	case binding.FromDirectory:
		e.inbox.start(func() {
			binding.WatchObjects(ctx, e.Live, e.watch(ctx, e.Live), func(read binding.Objects, err error) { e.inbox.sendUntil(ctx, LiveRead{read, err}) })
		})
	}
	for _, job := range e.services.observer.Jobs() {
		e.inbox.start(func() { job(ctx) })
	}
	e.loop(ctx)
	cancel()
	e.finish(ctx)
}

// loop takes turns until ctx is done.
func (e *engine) loop(ctx context.Context) {
	ticker := time.NewTicker(min(e.PollInterval, time.Second))
	defer ticker.Stop()
	for ctx.Err() == nil {
		if e.Leader != nil {
			if holder := e.Leader.Holder(); holder != e.leadership.holder {
				e.take(LeaderSeen{holder}, time.Now())
			}
		}
		e.tellPeople()
		e.eventLog.turn(e, time.Now())
		e.tellPeople()
		e.services.observer.Show(e.shown, e.reported)
		e.startEffects(ctx)
		var drained <-chan time.Time
		if _, due := e.bindings.Table(); !due.IsZero() {
			drained = time.After(time.Until(due))
		}
		select {
		case <-ctx.Done():
		case ev := <-e.inbox.events:
			e.take(ev, time.Now())
			e.takeWaiting()
		case <-ticker.C:
		case <-drained:
		}
	}
}

// levelEvent is the level at which the log has every event: below debug, as there are
// several for each instance and second.
const levelEvent = slog.LevelDebug - 4

// take takes an event, which happened at a time.
func (e *engine) take(ev Event, now time.Time) {
	if e.Log.Enabled(context.Background(), levelEvent) {
		e.Log.Log(context.Background(), levelEvent, "event", "event", ev.String())
	}
	e.eventLog.take(e, ev, now)
}

// takeWaiting takes the events that are waiting, so that a turn sees them all.
func (e *engine) takeWaiting() {
	for range cap(e.inbox.events) {
		select {
		case ev := <-e.inbox.events:
			e.take(ev, time.Now())
		default:
			return
		}
	}
}

// finish waits for effects and sources, which end as their context did, and saves what they
// had to say.
func (e *engine) finish(ctx context.Context) {
	ended := make(chan struct{})
	go func() {
		e.inbox.jobs.Wait()
		close(ended)
	}()
	for {
		select {
		case ev := <-e.inbox.events:
			e.take(ev, time.Now())
		case <-ended:
			e.takeWaiting()
			// How it ended is noted as trouble, and there is nobody left to tell.
			last := SaveEnded{save(ctx, e.services.keeper, e.lastSave(time.Now()))}
			last.apply(e, time.Now())
			e.tellPeople()
			e.services.observer.End()
			return
		}
	}
}

// watchFleet reads the fleet's file again when it or a password file changes.
func (b inbox) watchFleet(ctx context.Context, o Options, files []string) {
	for ctx.Err() == nil {
		watching, cancel := context.WithCancel(ctx)
		changed := o.watch(watching, files...)
		for watched := files; slices.Equal(watched, files); {
			// What changed before the watch began is seen now.
			f, err := fleet.Read(o.Fleet)
			b.sendUntil(ctx, FleetRead{f, err})
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

// watchCluster sends what changes in the cluster, until ctx is done.
func (b inbox) watchCluster(ctx context.Context, c Cluster) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-c.Changes():
			b.sendUntil(ctx, ClusterChanged{c.Take()})
		}
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
func (b inbox) watchStore(ctx context.Context, o Options) {
	changed := make(chan struct{}, 1)
	if s, ok := o.Store.(follower); ok {
		b.start(func() {
			s.Follow(ctx, func() {
				select {
				case changed <- struct{}{}:
				default:
				}
			})
		})
	}
	ticker := time.NewTicker(o.PollInterval)
	defer ticker.Stop()
	for {
		once, cancel := context.WithTimeout(ctx, viewTimeout)
		view, err := o.Store.View(once)
		cancel()
		if ctx.Err() != nil {
			return
		}
		b.sendUntil(ctx, ViewRead{view, err})
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
