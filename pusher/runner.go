// Package pusher brings the instances of a fleet to run the snapshot that should
// run, and keeps them on today's endpoints and certificates.
//
// It runs a [core.Machine], which knows everything and decides everything. One goroutine, the
// loop of runner.go, gives it events: what the store, the fleet's file, the pods, the cluster and
// the instances say, and how effects ended. Each step of the machine returns effects, and the
// runner starts each in a goroutine of its own; its end comes back as an event (services.go,
// package instance). An instance that hangs holds up only itself, and a state store that hangs
// holds up only rollouts.
//
// After each step the runner hands the view and the facts to package observe, which reports them.
// With an event log it also writes the events and the effects to a file (eventlog.go), so that the
// run can be replayed.
package pusher

import (
	"context"
	"errors"
	"log/slog"
	"os"
	"slices"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/hapsnap/hapsnap/internal/wholefile"
	"github.com/hapsnap/hapsnap/pusher/binding"
	"github.com/hapsnap/hapsnap/pusher/core"
	"github.com/hapsnap/hapsnap/pusher/fleet"
	"github.com/hapsnap/hapsnap/pusher/observe"
	"github.com/hapsnap/hapsnap/pusher/push"
	"github.com/hapsnap/hapsnap/pusher/report"
	"github.com/hapsnap/hapsnap/pusher/statestore"
)

// Run pushes until ctx is done, and then returns nil. An error says that it could not begin.
// Everything that it started has ended when it returns.
func Run(ctx context.Context, o Options) error {
	o = o.withDefaults()
	if o.Leader == nil {
		return runTerm(ctx, o)
	}
	c := candidate{Options: o, troubles: observe.Troubles{}}
	return c.run(ctx)
}

// runTerm leads until ctx is done or the term ends. Its error says that the pusher could not begin,
// or that another one has taken its state.
func runTerm(ctx context.Context, o Options) error {
	ctx, end := context.WithCancelCause(ctx)
	defer end(nil)
	stateStore := o.stateStore()
	defer stateStore.Release()
	now := time.Now()
	taken, err := stateStore.Take(ctx, newFallback(now))
	if err != nil {
		return err
	}
	if taken.Unmoved != nil {
		o.Log.Error("the key of the fallback certificate stays in the Secret of the state", "state", stateStore.String(), "err", taken.Unmoved)
	}
	s, err := core.ParseState(taken.State, stateStore.String())
	if err != nil {
		return err
	}
	instances, err := fleet.ReadAgain(o.Fleet, nil)
	if err != nil && instances.Name == "" {
		return err
	}
	if s.ID == "" {
		s.ID = newStateID()
		if err := saveState(ctx, stateStore, s); err != nil {
			o.Log.Warn("id of a new state not saved yet", "state", stateStore.String(), "err", err)
		}
	}
	remember(o.Store, s.Seen)
	if o.EventLog != "" {
		file := newEventFile(o.EventLog, o.Log)
		defer file.start()()
		o.eventsTo = file.write
	}
	self := push.Pusher{State: s.ID, Place: place(stateStore)}
	if write := o.Report; write != nil {
		o.Report = func(ctx context.Context, p report.Published) error {
			p.By = self.String()
			return write(ctx, p)
		}
	}
	o, remembers := o.remembering(stateStore, taken.Secrets)
	fence := push.NewFence(taken.Term, func() error { return leads(ctx, o.Leader) })
	fence.Sign(self, o.TakeOver)
	if host, err := os.Hostname(); err == nil { // only people read it
		fence.On(host)
	}
	r := newRunner(o, s, taken.Fallback, term{taken.Term, fence, stateStore, end}, now)
	r.remembers, r.recorder = remembers, newRecorder(o, self.String())
	r.run(ctx, instances)
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

// The loop's goroutine is the only one that uses the machine. Effects, and sources, which watch
// something for as long as the pusher runs, have goroutines of their own and send events.

// inbox takes the events, and starts the jobs that send them.
type inbox struct {
	events chan core.Event
	jobs   *sync.WaitGroup // effects and sources that have not ended
}

// waitingEvents is how many events may wait for the next step. The time of a step depends on the size of the fleet, not on
// the number of events, so one step should take all answers that a fleet of a thousand instances sends in a second.
const waitingEvents = 1024

func newInbox() inbox {
	return inbox{events: make(chan core.Event, waitingEvents), jobs: new(sync.WaitGroup)}
}

// start runs a job in a goroutine of its own.
func (b inbox) start(job func()) {
	b.jobs.Add(1)
	go func() {
		defer b.jobs.Done()
		job()
	}()
}

// send gives the runner an event, even if the pusher is about to end: it takes events until all
// effects have ended.
func (b inbox) send(ev core.Event) { b.events <- ev }

// sendUntil gives the runner an event, unless ctx is done.
func (b inbox) sendUntil(ctx context.Context, ev core.Event) {
	select {
	case b.events <- ev:
	case <-ctx.Done():
	}
}

// reporting wraps the function that writes the status. It sends an event when that needs a person, and when it is written again.
// One goroutine calls the result.
func (b inbox) reporting(write func(context.Context, report.Published) error) func(context.Context, report.Published) error {
	if write == nil {
		return nil
	}
	told := false
	return func(ctx context.Context, p report.Published) error {
		err := write(ctx, p)
		if why, is := errors.AsType[report.UnwritableError](err); is && !told {
			told = true
			b.sendUntil(ctx, core.StatusWritten{Err: why})
		} else if told && err == nil {
			told = false
			b.sendUntil(ctx, core.StatusWritten{})
		}
		return err
	}
}

// lastLines is how long a pusher that ends waits for its event log to be written.
const lastLines = 2 * time.Second

// start begins to write an event log. The function that it returns ends that.
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

// runner gives events to a machine, and starts the effects that it returns.
type runner struct {
	Options
	machine  *core.Machine
	services *services
	inbox    inbox
	waiting  []core.Event // for the next step
	holder   string       // the last known leader
	eventLog *eventLog    // nil: there is none
	// remembers keeps what Secrets hold, nil if nothing does.
	remembers func(context.Context)
	recorder  *recorder // nil: there is no journal
}

// term is what a runner needs to lead.
type term struct {
	number int64       // 0 for a state without terms
	fence  *push.Fence // keeps a pusher that no longer leads from writing to instances
	state  StateStore
	end    context.CancelCauseFunc // ends the term
}

func newRunner(o Options, s core.State, fallback []byte, t term, now time.Time) *runner {
	inbox := newInbox()
	o.Report = inbox.reporting(o.Report)
	r := &runner{Options: o, machine: core.New(o.settings(), s, fallback, now), services: o.services(t, inbox.start), inbox: inbox}
	r.machine.Lead(t.number)
	if o.eventsTo != nil {
		r.eventLog = newEventLog(o.eventsTo, o.settings(), s, o.Log, now)
		r.eventLog.first.Term = &t.number
		r.machine.RecordNodes(r.eventLog.node)
	}
	return r
}

// run leads a fleet until ctx is done and everything that it started has ended.
func (r *runner) run(ctx context.Context, instances fleet.Fleet) {
	ctx, cancel := context.WithCancel(ctx)
	if r.cache() != "" {
		wholefile.RemoveTemporaries(r.cache(), temporaryAge, "*.json")
	}
	r.take(core.FleetRead{Fleet: instances})
	r.inbox.start(func() { r.inbox.watchFleet(ctx, r.Options, instances) })
	r.inbox.start(func() { r.inbox.watchStore(ctx, r.Options) })
	switch r.endpointsFrom() {
	case binding.FromSnapshots:
	case binding.FromCluster:
		r.inbox.start(func() { r.Cluster.Run(ctx) })
		r.inbox.start(func() { r.inbox.watchCluster(ctx, r.Cluster) })
		if r.remembers != nil {
			r.inbox.start(func() { r.remembers(ctx) })
		}
	case binding.FromDirectory:
		r.inbox.start(func() {
			binding.WatchObjects(ctx, r.Live, r.watch(ctx, r.Live), func(read binding.Objects, err error) {
				r.inbox.sendUntil(ctx, core.LiveRead{Live: read, Err: err})
			})
		})
	}
	if r.recorder != nil {
		r.inbox.start(func() { r.recorder.run(ctx) })
	}
	for _, job := range r.services.observer.Jobs() {
		r.inbox.start(func() { job(ctx) })
	}
	r.loop(ctx)
	cancel()
	// Effects and sources end with their context. Their last events go into the last save.
	ended := make(chan struct{})
	go func() {
		r.inbox.jobs.Wait()
		close(ended)
	}()
	for {
		select {
		case ev := <-r.inbox.events:
			r.take(ev)
		case <-ended:
			r.takeWaiting()
			r.machine.Take(time.Now(), r.waiting...)
			// An error of this save is noted as trouble, and is not reported any more.
			r.machine.Take(time.Now(), save(ctx, r.services.stateStore, r.machine.LastSave(time.Now())))
			r.services.observer.Record(r.machine.Facts()...)
			r.services.observer.End()
			return
		}
	}
}

// loop takes steps until ctx is done.
func (r *runner) loop(ctx context.Context) {
	ticker := time.NewTicker(min(r.PollInterval, time.Second))
	defer ticker.Stop()
	for ctx.Err() == nil {
		r.step(ctx, time.Now())
		var drained <-chan time.Time
		if due := r.machine.Due(); !due.IsZero() {
			drained = time.After(time.Until(due))
		}
		select {
		case <-ctx.Done():
		case ev := <-r.inbox.events:
			r.take(ev)
			r.takeWaiting()
		case <-ticker.C:
		case <-drained:
		}
	}
}

// step takes a step with the waiting events, reports it, and starts its effects.
func (r *runner) step(ctx context.Context, now time.Time) {
	if r.Leader != nil {
		if holder := r.Leader.Holder(); holder != r.holder {
			r.holder = holder
			r.take(core.LeaderSeen{Holder: holder})
		}
	}
	r.eventLog.taken(now, r.waiting)
	effects := r.machine.Step(now, r.waiting...)
	view, status := r.machine.Shown()
	r.eventLog.returned(now, effects, view)
	clear(r.waiting)
	r.waiting = r.waiting[:0]
	facts := r.machine.Facts()
	r.services.observer.Record(facts...)
	r.services.observer.Show(view, status)
	if r.Watch != nil {
		r.Watch(view, status, facts)
	}
	r.recorder.note(facts, status.Fleet)
	r.services.observer.Took(time.Since(now))
	for _, x := range effects {
		if run := r.services.job(ctx, x); run != nil {
			r.inbox.start(func() { run(ctx, r.inbox.send) })
		}
	}
}

// levelEvent is the level at which every event is logged. It is below debug, since there are several
// events for each instance and second.
const levelEvent = slog.LevelDebug - 4

// take adds an event to those that wait for the next step.
func (r *runner) take(ev core.Event) {
	if r.Log.Enabled(context.Background(), levelEvent) {
		r.Log.Log(context.Background(), levelEvent, "event", "event", ev.String())
	}
	r.waiting = append(r.waiting, ev)
}

// takeWaiting takes the events that are in the inbox, so that a step sees them all.
func (r *runner) takeWaiting() {
	for range cap(r.inbox.events) {
		select {
		case ev := <-r.inbox.events:
			r.take(ev)
		default:
			return
		}
	}
}

// watchFleet reads the fleet's file again when it or a password file changes.
func (b inbox) watchFleet(ctx context.Context, o Options, known fleet.Fleet) {
	files := known.Files
	for ctx.Err() == nil {
		watching, cancel := context.WithCancel(ctx)
		changed := o.watch(watching, files...)
		for watched := files; slices.Equal(watched, files); {
			// Read after the watch began, so that no change is missed.
			f, err := fleet.ReadAgain(o.Fleet, known.Instances)
			b.sendUntil(ctx, core.FleetRead{Fleet: f, Err: err})
			if f.Name != "" {
				known = f
			}
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

// watchCluster sends the changes in the cluster, until ctx is done.
func (b inbox) watchCluster(ctx context.Context, c Cluster) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-c.Changes():
			b.sendUntil(ctx, core.ClusterChanged{Change: c.Take()})
		}
	}
}

// follower is a store that reports when it may have changed.
type follower interface {
	// Follow calls changed after each change, until ctx is done.
	Follow(ctx context.Context, changed func())
}

// calm is the least time between two looks into the store, however often it reports changes.
const calm = 100 * time.Millisecond

// watchStore looks into the store at each poll interval. If the store is a follower, it also looks
// whenever the store may have changed.
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
		looked := time.Now()
		once, cancel := context.WithTimeout(ctx, viewTimeout)
		view, err := o.Store.View(once)
		cancel()
		if ctx.Err() != nil {
			return
		}
		b.sendUntil(ctx, core.ViewRead{View: view, Err: err})
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
		case <-time.After(time.Until(looked.Add(calm))):
		}
	}
}

// Leader is what the pusher needs of an election. See package internal/election.
type Leader interface {
	// Term returns a context for what only the leader may do. It ends with the term. Leading is false
	// if this pusher does not lead. The caller calls end when it no longer uses the context.
	Term(ctx context.Context) (during context.Context, end context.CancelFunc, leading bool)
	// Leads returns nil while this pusher leads.
	Leads() error
	// Holder names the last known leader.
	Holder() string
	// Changed receives when this pusher may have begun or ceased to lead.
	Changed() <-chan struct{}
	// Trouble returns why nobody can be elected, or nil.
	Trouble() error
}

// The waits after a term that ended with an error. A pusher that took the state while this one led
// was elected by another Lease. A person has to fix that, and two pushers that take the state from
// each other in turn help nobody.
const (
	leadRetry  = 10 * time.Second
	takenRetry = time.Minute
)

// leadAgain returns when to lead again after an error.
func leadAgain(err error, now time.Time) time.Time {
	if errors.Is(err, statestore.ErrTaken) {
		return now.Add(takenRetry)
	}
	return now.Add(leadRetry)
}

// candidate is a pusher that leads while it is elected.
type candidate struct {
	Options
	troubles   observe.Troubles
	conditions []metav1.Condition // while it stands by
	fleet      string             // its name
}

// run leads whenever this pusher is elected, until ctx is done.
func (c *candidate) run(ctx context.Context) error {
	f, err := fleet.ReadAgain(c.Fleet, nil)
	if err != nil && f.Name == "" {
		return err
	}
	c.fleet = f.Name
	look := time.NewTicker(time.Second)
	defer look.Stop()
	var notBefore time.Time
	for ctx.Err() == nil {
		if time.Now().After(notBefore) {
			err := c.term(ctx)
			if err != nil {
				c.Log.Error("not leading any more", "err", err)
				notBefore = leadAgain(err, time.Now())
			} else if err = observe.OthersState(c.Leader.Holder(), c.Leader.Leads() == nil, c.fleet); err != nil && c.troubles[report.AboutState].Error != report.Brief(err) {
				c.Log.Error("the state is that of another fleet", "err", err)
			}
			c.note(report.AboutState, err, time.Now())
		}
		c.note(report.AboutElection, c.Leader.Trouble(), time.Now())
		if c.Status != nil {
			s := observe.Standby(c.Leader.Holder(), c.Leader.Leads() == nil, c.troubles, c.conditions, time.Now())
			c.conditions = s.Conditions
			c.Status(s)
		}
		select {
		case <-ctx.Done():
		case <-c.Leader.Changed():
		case <-look.C:
		}
	}
	return nil
}

// term leads until the term ends, if this pusher is elected.
func (c *candidate) term(ctx context.Context) error {
	during, end, leading := c.Leader.Term(ctx)
	defer end()
	if !leading {
		return nil
	}
	o := c.Options
	metrics := &termMetrics{Registerer: o.Metrics}
	defer metrics.end()
	o.Metrics = metrics
	return runTerm(during, o)
}

// note notes why a pusher that stands by could not lead.
func (c *candidate) note(about string, err error, now time.Time) { c.troubles.Set(about, err, now) }

// termMetrics are registered during a term only: a pusher that stands by knows nothing of the fleet.
type termMetrics struct {
	prometheus.Registerer
	all []prometheus.Collector
}

// MustRegister registers for as long as the term lasts.
func (m *termMetrics) MustRegister(all ...prometheus.Collector) {
	m.Registerer.MustRegister(all...)
	m.all = append(m.all, all...)
}

func (m *termMetrics) end() {
	for _, c := range m.all {
		m.Unregister(c)
	}
}
