// Package instance carries out effects on HAProxy instances. It decides nothing.
//
// An [Effect] and an [Event] are values that name an instance by its [Ref]. [Connections] has the
// clients of the instances, the fence of the term, and a record of what was uploaded.
// [Connections.Job] returns a job for each effect, which sends one event when it has ended. The
// job of [Join] probes the instance periodically, and sends an event for each answer.
//
// Each event says how its effect ended, and, in [Known], what is known of the instance's haproxy.cfg
// and worker at that time.
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

// Options are the options of all connections.
type Options struct {
	// PollInterval is how often each instance is probed.
	PollInterval time.Duration
	// ReloadTimeout is how long a reload of HAProxy may take.
	ReloadTimeout time.Duration
	// HTTP is the client for all instances. Nil means one for each.
	HTTP *http.Client
	// Directory gets the clients of the instances. It may be nil.
	Directory *Directory
}

// Connections has the connections to the instances of a fleet. Only the goroutine that starts effects
// uses it.
type Connections struct {
	options Options
	fence   *push.Fence // nil: there is none
	byName  map[string]*connection
	texts   *dataplane.Texts // what the instances have on disk
}

// New returns Connections without an instance. The fence decides what may be written to an instance.
// Without a fence (nil) everything may be written.
func New(o Options, fence *push.Fence) *Connections {
	o.Directory.clear()
	return &Connections{options: o, fence: fence, byName: map[string]*connection{}, texts: &dataplane.Texts{}}
}

// connection has what is needed to reach an instance.
type connection struct {
	ref    Ref
	spec   fleet.Instance
	client *dataplane.Client
	target push.Instance
	fence  *push.Fence
	onDisk push.CertificateHashes // the certificates on its disk, as far as pushes have seen them
	known  *lastKnown             // shared by all connections to the same instance
	// Two lifetimes that outlast calls: probing ends when the probes end, and here when the
	// instance is gone, which also ends jobs.
	probing   context.Context //nolint:containedctx // see above
	endProbes context.CancelFunc
	here      context.Context //nolint:containedctx // see above
	gone      context.CancelFunc
	limit     time.Duration // of a job
}

// lastKnown numbers the events of an instance.
type lastKnown struct {
	mu     sync.Mutex
	number int
}

// about returns the part of an event that is about its instance.
func (c *connection) about() About {
	c.known.mu.Lock()
	defer c.known.mu.Unlock()
	c.known.number++
	return About{c.ref, Known{
		Number: c.known.number, Record: c.target.Record.View(), Override: c.target.Override.Get(), Peer: c.client.Peer(),
	}}
}

// access returns the options of an instance's client.
func (s *Connections) access(spec fleet.Instance) dataplane.Options {
	out := spec.Access()
	out.HTTP, out.Texts = s.options.HTTP, s.texts
	return out
}

// Valid returns an error if no client can be made for an instance.
func Valid(spec fleet.Instance) error {
	if _, err := dataplane.New(New(Options{}, nil).access(spec)); err != nil {
		return fmt.Errorf("instance %s: %w", spec.Name, err)
	}
	return nil
}

// join connects to an instance, and replaces the connection of that name.
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
		old.endProbes()
	}
	// The limit bounds a job, so that an instance that hangs is free again some time. A push looks,
	// uploads and reloads, and may have to do so again.
	c := &connection{ref: j.Ref, spec: j.Spec, client: client, fence: s.fence, onDisk: push.CertificateHashes{}, limit: 3*s.options.ReloadTimeout + 30*time.Second}
	c.probing, c.endProbes = context.WithCancel(context.Background())
	c.target = push.Instance{API: client, ReloadTimeout: s.options.ReloadTimeout, Layout: j.Spec.Layout}
	if old != nil {
		c.known, c.here, c.gone = old.known, old.here, old.gone
		c.target.Override, c.target.Record = old.target.Override, old.target.Record
	} else {
		c.known = &lastKnown{}
		c.here, c.gone = context.WithCancel(context.Background())
		c.target.Override, c.target.Record = &push.RunningOverride{}, push.NewRecord(j.Remembered)
		c.target.Override.Restore(j.Override)
	}
	if s.fence != nil {
		c.target.API = s.fence.Around(client, c.target.Record)
	}
	s.byName[j.Name] = c
	s.options.Directory.set(j.Name, client)
	return c, nil
}

// renew gives the client of an instance other credentials.
func (s *Connections) renew(r Renew) error {
	if err := s.byName[r.Name].client.Renew(s.access(r.Spec)); err != nil {
		return fmt.Errorf("instance %s: %w", r.Name, err)
	}
	return nil
}

// leave closes the connection to an instance. If the instance is a pod, its jobs end too.
func (s *Connections) leave(name string) {
	c := s.byName[name]
	if c == nil {
		return
	}
	c.endProbes()
	if c.ref.UID != "" {
		c.gone()
	}
	delete(s.byName, name)
	s.options.Directory.set(name, nil)
}

// within returns a context for a job. It ends when the instance is gone or the job takes too long.
func (c *connection) within(ctx context.Context, limit time.Duration) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithTimeout(ctx, limit)
	stop := context.AfterFunc(c.here, cancel)
	return ctx, func() { stop(); cancel() }
}

// probeTimeout bounds how long an instance may take to say what it runs.
const probeTimeout = 5 * time.Second

// probe returns the job that probes an instance.
func (c *connection) probe(o Options) Job {
	return func(ctx context.Context, send func(Event)) {
		ctx, cancel := context.WithCancel(ctx)
		defer cancel()
		defer context.AfterFunc(c.probing, cancel)()
		probePeriodically(ctx, c, o.PollInterval, cmp.Or(min(probeTimeout, o.ReloadTimeout), probeTimeout), func(info dataplane.RuntimeInfo, err error, asked time.Time) {
			send(Probed{c.about(), info, err, asked})
		})
	}
}

// RuntimeInfo asks the worker what it runs, again for a moment if it is being replaced.
func (c *connection) RuntimeInfo(ctx context.Context) (dataplane.RuntimeInfo, error) {
	return c.target.WorkerInfo(ctx)
}

// Supported returns an error if the API's version is not supported.
func (c *connection) Supported(ctx context.Context) error { return c.client.Supported(ctx) }

// respondent is an instance that can be probed.
type respondent interface {
	RuntimeInfo(ctx context.Context) (dataplane.RuntimeInfo, error)
	// Supported returns an error if the API's version is not supported.
	Supported(ctx context.Context) error
}

// probePeriodically asks the instance periodically what it runs, and reports each answer, until ctx is done. It also
// asks for the version of the API at first, and after the instance was out of reach, since the API may
// have been replaced.
func probePeriodically(ctx context.Context, api respondent, every, timeout time.Duration, report func(dataplane.RuntimeInfo, error, time.Time)) {
	ticker := time.NewTicker(every)
	defer ticker.Stop()
	for supported := false; ; {
		asked := time.Now()
		once, cancel := context.WithTimeout(ctx, timeout)
		info, err := probeOnce(once, api, supported)
		cancel()
		if ctx.Err() != nil {
			return
		}
		supported = err == nil || (supported && errors.Is(err, dataplane.ErrRuntime))
		report(info, err, asked)
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
	}
}

func probeOnce(ctx context.Context, api respondent, supported bool) (dataplane.RuntimeInfo, error) {
	if !supported {
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

// Past is how long statistics of an instance are kept for comparisons.
const Past = 5 * time.Minute

var errReplaced = errors.New("the worker was replaced meanwhile")

// sample asks for statistics. It returns an error if they are not all of one worker.
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

// summary adds up the requests of clients, and lists the backends that are down or were down for a
// moment.
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

// Directory has the clients of a fleet's instances, for those who only look, such as the page. Its methods may be
// called at the same time. [Connections] keeps it up to date, and pushes do not wait for it. A nil Directory is empty.
type Directory struct {
	mu      sync.Mutex
	clients map[string]*dataplane.Client
}

// How many instances one call of Servers asks, and how many at once.
const mostAsked, atOnce = 20, 8

// Servers asks instances for the servers of a backend. It returns the answers that come until ctx is done, by name of
// the instance. In a large fleet it asks the first 20 instances.
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
			return nil // instances that do not answer are left out
		})
	}
	_ = all.Wait() // none fails
	return out
}

// set replaces the client of an instance; nil is for an instance that left.
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
