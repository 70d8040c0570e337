package instance

import (
	"context"
	"fmt"
	"net/http"
	"sync"
	"time"

	"github.com/hapsnap/hapsnap/pusher/dataplane"
	"github.com/hapsnap/hapsnap/pusher/fleet"
	"github.com/hapsnap/hapsnap/pusher/push"
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
