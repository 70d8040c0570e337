package announce

import (
	"cmp"
	"context"
	"log/slog"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"golang.org/x/sync/errgroup"
	eventsv1 "k8s.io/client-go/kubernetes/typed/events/v1"
	networkingv1 "k8s.io/client-go/kubernetes/typed/networking/v1"
	"k8s.io/client-go/util/flowcontrol"

	"github.com/hapsnap/hapsnap/compiler/config"
	"github.com/hapsnap/hapsnap/compiler/diag"
	"github.com/hapsnap/hapsnap/compiler/inputs"
)

// manager is who owns the statuses, and who reports Events.
const manager = "hapsnap-compiler"

// How often the API server is written to, in requests each second, and how many
// at once. Ten thousand objects with a fault are told so in half an hour.
const (
	eventRate, eventBurst   = 5, 25
	statusRate, statusBurst = 10, 50
)

// The times between attempts while the API server refuses, or is gone.
const (
	firstRetry = time.Second
	lastRetry  = 30 * time.Second
	// look is how often it is looked whether something is to be said again.
	look = time.Minute
)

// leader says whether this process is the one that writes.
type leader interface {
	Term(ctx context.Context) (during context.Context, end context.CancelFunc, leading bool)
}

// Options are those of an [Announcer]. All fields are needed.
type Options struct {
	Events    eventsv1.EventsGetter
	Ingresses networkingv1.IngressesGetter
	Leader    leader
	Instance  string // this process, for the Events
	Log       *slog.Logger
	Metrics   prometheus.Registerer
}

// Announcer tells a cluster what became of its objects. It may be used by several
// goroutines.
type Announcer struct {
	options Options
	metrics *metrics

	mu     sync.Mutex
	events ledger
	bad    map[diag.Object]bool // left out by the last compile
	desire desire
	marks  marks

	kickEvents, kickStatuses chan struct{}
	eventLimit, statusLimit  flowcontrol.RateLimiter
}

// New returns an announcer, which writes once it is run.
func New(o Options) *Announcer {
	return &Announcer{
		options: o, metrics: newMetrics(o.Metrics),
		events: ledger{said: map[string]record{}}, marks: marks{},
		kickEvents: make(chan struct{}, 1), kickStatuses: make(chan struct{}, 1),
		eventLimit:  flowcontrol.NewTokenBucketRateLimiter(eventRate, eventBurst),
		statusLimit: flowcontrol.NewTokenBucketRateLimiter(statusRate, statusBurst),
	}
}

// Compiled says what was found by a compile of the objects. Followers are told as
// well, so that they know what to say when they lead.
func (a *Announcer) Compiled(in inputs.Inputs, found []diag.Diagnostic) {
	a.mu.Lock()
	defer a.mu.Unlock()
	bad := leftOut(found)
	a.events.wish(Events(in, found), good(in, a.bad, bad), time.Now())
	a.bad = bad
	kick(a.kickEvents)
}

// Published says which Ingresses the published snapshot serves.
func (a *Announcer) Published(in inputs.Inputs, served map[diag.Object]bool, c config.IngressStatus) {
	a.mu.Lock()
	defer a.mu.Unlock()
	where, known := Addresses(c, in)
	if !known && c.Service != "" && (a.desire.known || a.desire.served == nil) {
		a.options.Log.Warn("service for the status of ingresses not found, leaving them as they are", "service", c.Service)
	}
	a.desire = desire{in: in, served: served, addresses: where, known: known}
	a.marks.keep(in)
	kick(a.kickStatuses)
}

func kick(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

// Run writes until ctx is done, and then returns nil. What is said stays.
func (a *Announcer) Run(ctx context.Context) error {
	var group errgroup.Group
	group.Go(func() error { a.loop(ctx, "events", a.kickEvents, a.nextEvent); return nil })
	group.Go(func() error { a.loop(ctx, "statuses of ingresses", a.kickStatuses, a.nextStatus); return nil })
	return group.Wait()
}

// loop writes what is due whenever it is kicked, and at times. One round ends
// when write finds nothing more to do.
func (a *Announcer) loop(ctx context.Context, what string, kicked <-chan struct{}, write func(context.Context) (bool, error)) {
	wait := time.Duration(0)
	for {
		timer := time.NewTimer(cmp.Or(wait, look))
		select {
		case <-ctx.Done():
			timer.Stop()
			return
		case <-kicked:
		case <-timer.C:
		}
		timer.Stop()
		err := a.round(ctx, write)
		switch {
		case ctx.Err() != nil:
		case err == nil:
			wait = 0
		default:
			if wait == 0 {
				a.options.Log.Warn("cluster not told, trying again", "of", what, "err", err)
			}
			wait = min(max(2*wait, firstRetry), lastRetry)
		}
	}
}

// round writes one thing after the other, each while leading.
func (a *Announcer) round(ctx context.Context, write func(context.Context) (bool, error)) error {
	for ctx.Err() == nil {
		during, end, leading := a.options.Leader.Term(ctx)
		if !leading {
			return nil
		}
		more, err := write(during)
		ended := during.Err() != nil
		end()
		if ended || !more || err != nil {
			return err
		}
	}
	return nil
}
