// Package instance carries out effects on HAProxy instances. It decides nothing.
//
// An [Effect] and an [Event] are values that name an instance by its [Ref]. [Connections] has the
// clients of the instances, the fence of the term, and a record of what was uploaded.
// [Connections.Job] returns a job for each effect, which sends one event when it has ended. The
// job of [Join] probes the instance again and again, and sends an event for each answer.
//
// Each event says how its effect ended, and what is known by then of the instance's haproxy.cfg and
// worker: [Known].
package instance

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"math"
	"net/http"
	"slices"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/hapsnap/hapsnap/pusher/dataplane"
	"github.com/hapsnap/hapsnap/pusher/fleet"
	"github.com/hapsnap/hapsnap/pusher/push"
	"github.com/hapsnap/hapsnap/pusher/rollout"
)

// Options are those of all connections.
type Options struct {
	// PollInterval is how often each instance is asked what it runs.
	PollInterval time.Duration
	// ReloadTimeout is how long a reload of HAProxy may take.
	ReloadTimeout time.Duration
	// HTTP is what instances are asked with; nil: a client of its own for each.
	HTTP *http.Client
	// Directory learns of instances that come and go; nil: nobody asks.
	Directory *Directory
}

// Connections are those to the instances of a fleet. One goroutine uses them: the one that
// starts effects.
type Connections struct {
	options Options
	fence   *push.Fence // nil: there is none
	byName  map[string]*connection
}

// New returns connections to no instance yet. Nothing is written to an instance that the fence
// keeps from it; nil: there is none.
func New(o Options, fence *push.Fence) *Connections {
	o.Directory.clear()
	return &Connections{options: o, fence: fence, byName: map[string]*connection{}}
}

// connection is what it takes to reach an instance.
type connection struct {
	ref    Ref
	spec   fleet.Instance
	client *dataplane.Client
	target push.Instance
	fence  *push.Fence
	onDisk push.Known // the certificates on its disk, as far as pushes have seen them
	known  *lastKnown // of all connections to the same instance
	// Two lifetimes, which are no call's: asked ends when it is no longer asked, and here when
	// the instance is gone, which ends jobs.
	asked  context.Context //nolint:containedctx // see above
	silent context.CancelFunc
	here   context.Context //nolint:containedctx // see above
	gone   context.CancelFunc
	limit  time.Duration // of a job
}

// lastKnown counts what is known of an instance.
type lastKnown struct {
	mu     sync.Mutex
	number int
}

// about returns what an event has of its instance.
func (c *connection) about() About {
	c.known.mu.Lock()
	defer c.known.mu.Unlock()
	c.known.number++
	return About{c.ref, Known{
		Number: c.known.number, Record: c.target.Record.View(), Override: c.target.Override.Get(), Peer: c.client.Peer(),
	}}
}

// access is what a client of an instance takes.
func (s *Connections) access(spec fleet.Instance) dataplane.Options {
	return dataplane.Options{URL: spec.URL, Username: spec.Username, Password: spec.Password, TLS: spec.TLS, HTTP: s.options.HTTP}
}

// Valid returns an error of an instance that nobody can connect to.
func Valid(spec fleet.Instance) error {
	if _, err := dataplane.New(New(Options{}, nil).access(spec)); err != nil {
		return fmt.Errorf("instance %s: %w", spec.Name, err)
	}
	return nil
}

// join connects to an instance in place of the one that has its name.
func (s *Connections) join(j Join) (*connection, error) {
	client, err := dataplane.New(s.access(j.Spec))
	if err != nil {
		return nil, fmt.Errorf("instance %s: %w", j.Name, err)
	}
	old := s.byName[j.Name]
	if old != nil && old.ref.UID != j.UID {
		s.leave(j.Name)
		old = nil
	} else if old != nil {
		old.silent()
	}
	// The limit bounds a job, so that an instance that hangs is free again some day: a push looks,
	// uploads, reloads, and may have to do so again.
	c := &connection{ref: j.Ref, spec: j.Spec, client: client, fence: s.fence, onDisk: push.Known{}, limit: 3*s.options.ReloadTimeout + 30*time.Second}
	c.asked, c.silent = context.WithCancel(context.Background())
	c.target = push.Instance{API: client, ReloadTimeout: s.options.ReloadTimeout, Layout: j.Spec.Layout}
	if old != nil {
		c.known, c.here, c.gone = old.known, old.here, old.gone
		c.target.Override, c.target.Record = old.target.Override, old.target.Record
	} else {
		c.known = &lastKnown{}
		c.here, c.gone = context.WithCancel(context.Background())
		c.target.Override, c.target.Record = &push.RunningOverride{}, push.NewRecord(j.Remembered)
		c.target.Override.Set(j.Override)
	}
	if s.fence != nil {
		c.target.API = s.fence.Around(client, c.target.Record)
	}
	s.byName[j.Name] = c
	s.options.Directory.set(j.Name, client)
	return c, nil
}

// renew has an instance asked with other credentials.
func (s *Connections) renew(r Renew) error {
	if err := s.byName[r.Name].client.Renew(s.access(r.Spec)); err != nil {
		return fmt.Errorf("instance %s: %w", r.Name, err)
	}
	return nil
}

// leave lets go of an instance.
func (s *Connections) leave(name string) {
	c := s.byName[name]
	if c == nil {
		return
	}
	c.silent()
	if c.ref.UID != "" {
		c.gone()
	}
	delete(s.byName, name)
	s.options.Directory.set(name, nil)
}

// within returns a context for a job, which ends when the instance is gone, or takes too long.
func (c *connection) within(ctx context.Context, limit time.Duration) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithTimeout(ctx, limit)
	stop := context.AfterFunc(c.here, cancel)
	return ctx, func() { stop(); cancel() }
}

// askTimeout bounds how long an instance may take to say what it runs.
const askTimeout = 5 * time.Second

// ask returns the job that asks an instance again and again what its worker runs.
func (c *connection) ask(o Options) Job {
	return func(ctx context.Context, send func(Event)) {
		ctx, cancel := context.WithCancel(ctx)
		defer cancel()
		defer context.AfterFunc(c.asked, cancel)()
		ask(ctx, c, o.PollInterval, cmp.Or(min(askTimeout, o.ReloadTimeout), askTimeout), func(info dataplane.RuntimeInfo, err error, asked time.Time) {
			send(Probed{c.about(), info, err, asked})
		})
	}
}

// RuntimeInfo asks the worker what it runs.
func (c *connection) RuntimeInfo(ctx context.Context) (dataplane.RuntimeInfo, error) {
	return c.target.RuntimeInfo(ctx)
}

// Supported returns an error of an API that is not worked with.
func (c *connection) Supported(ctx context.Context) error { return c.client.Supported(ctx) }

// respondent is an instance that is asked what it runs.
type respondent interface {
	RuntimeInfo(ctx context.Context) (dataplane.RuntimeInfo, error)
	// Supported returns an error of an API that is not worked with.
	Supported(ctx context.Context) error
}

// ask asks the instance again and again what it runs, and reports each answer,
// until ctx is done. Of its version the API is asked when it is met, and after it
// was out of reach: it may be another one then.
func ask(ctx context.Context, api respondent, every, timeout time.Duration, report func(dataplane.RuntimeInfo, error, time.Time)) {
	ticker := time.NewTicker(every)
	defer ticker.Stop()
	for met := false; ; {
		asked := time.Now()
		once, cancel := context.WithTimeout(ctx, timeout)
		info, err := askOnce(once, api, met)
		cancel()
		if ctx.Err() != nil {
			return
		}
		met = err == nil || (met && errors.Is(err, dataplane.ErrRuntime))
		report(info, err, asked)
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
	}
}

func askOnce(ctx context.Context, api respondent, met bool) (dataplane.RuntimeInfo, error) {
	if !met {
		if err := api.Supported(ctx); err != nil {
			return dataplane.RuntimeInfo{}, err
		}
	}
	info, err := api.RuntimeInfo(ctx)
	if err == nil {
		err = dataplane.CheckHAProxy(info.Version)
	}
	return info, err
}

// Past is how long what an instance counted is remembered, to be compared with.
const Past = 5 * time.Minute

var errReplaced = errors.New("the worker was replaced meanwhile")

// sample asks for statistics, and makes sure that one worker gave them all.
func sample(ctx context.Context, c *dataplane.Client, ignore []string, asked time.Time) (rollout.Sample, error) {
	ctx, cancel := context.WithTimeout(ctx, sampleTimeout)
	defer cancel()
	before, err := c.RuntimeInfo(ctx)
	if err != nil {
		return rollout.Sample{}, fmt.Errorf("sample statistics: %w", err)
	}
	frontends, err := c.FrontendStatistics(ctx)
	if err != nil {
		return rollout.Sample{}, fmt.Errorf("sample statistics: %w", err)
	}
	backends, err := c.BackendStatistics(ctx)
	if err != nil {
		return rollout.Sample{}, fmt.Errorf("sample statistics: %w", err)
	}
	after, err := c.RuntimeInfo(ctx)
	if err == nil && after.PID != before.PID {
		err = errReplaced
	}
	if err != nil {
		return rollout.Sample{}, fmt.Errorf("sample statistics: %w", err)
	}
	return summary(frontends, backends, ignore, rollout.Sample{At: asked, PID: after.PID}), nil
}

// summary adds up what clients caused, and lists what is down, or was so for a moment.
// What it does not have at first, a backend may have lost before.
func summary(frontends []dataplane.FrontendStatistics, backends []dataplane.BackendStatistics, ignore []string, s rollout.Sample) rollout.Sample {
	for _, f := range frontends {
		if !slices.Contains(ignore, f.Name) {
			s.Requests, s.Errors, s.Connections = s.Requests+f.Requests, s.Errors+f.Errors, s.Connections+f.Connections
		}
	}
	s.Served = map[string]int64{}
	backends = slices.SortedFunc(slices.Values(backends), func(a, b dataplane.BackendStatistics) int { return cmp.Compare(a.Name, b.Name) })
	for _, b := range backends {
		s.Up.Backends, s.Up.Counts = append(s.Up.Backends, b.Name), append(s.Up.Counts, uint16(min(b.Up, math.MaxUint16))) //nolint:gosec // it is bounded
		if b.Down {
			s.Down = append(s.Down, b.Name)
		}
		if (b.Down && b.Downs > 1) || (!b.Down && b.Downs > 0 && b.Since < Past) {
			s.Flapped = append(s.Flapped, b.Name)
		}
		if b.Requests > 0 {
			s.Served[b.Name] = b.Requests
		}
		if b.Errors > 0 {
			if s.By == nil {
				s.By = map[string]int64{}
			}
			s.By[b.Name] = b.Errors
		}
	}
	return s
}

// sampleTimeout bounds how long an instance may take to give its statistics.
const sampleTimeout = 30 * time.Second

// Directory has whom to ask about a fleet's workers, for those who only look, such as the page. Anybody may ask
// it at any time: [Connections] keep it up to date, and nobody who pushes waits for it. nil has nobody.
type Directory struct {
	mu      sync.Mutex
	clients map[string]*dataplane.Client
}

// The bounds of one question: of instances that are asked, and of those at once.
const mostAsked, atOnce = 20, 8

// Servers asks instances for the servers of a backend, and returns what those said that answered until ctx is
// done, by name. Of a large fleet the first 20 are asked.
func (d *Directory) Servers(ctx context.Context, backend string) map[string][]dataplane.Server {
	d.mu.Lock()
	clients := maps.Clone(d.clients)
	d.mu.Unlock()
	names := slices.Sorted(maps.Keys(clients))
	var mu sync.Mutex
	var all errgroup.Group
	all.SetLimit(atOnce)
	out := map[string][]dataplane.Server{}
	for _, name := range names[:min(len(names), mostAsked)] {
		all.Go(func() error {
			servers, err := clients[name].Servers(ctx, backend)
			if err == nil {
				mu.Lock()
				defer mu.Unlock()
				out[name] = servers
			}
			return nil // who does not answer is not among them
		})
	}
	_ = all.Wait() // none fails
	return out
}

// set takes a client of an instance, in place of the one before; nil for an instance that left.
func (d *Directory) set(name string, client *dataplane.Client) {
	if d == nil {
		return
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if client == nil {
		delete(d.clients, name)
		return
	}
	if d.clients == nil {
		d.clients = map[string]*dataplane.Client{}
	}
	d.clients[name] = client
}

// clear forgets all instances.
func (d *Directory) clear() {
	if d == nil {
		return
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	clear(d.clients)
}
