package cluster

import (
	"context"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"time"

	"k8s.io/client-go/dynamic"

	"github.com/hapsnap/hapsnap/compiler/config"
	"github.com/hapsnap/hapsnap/compiler/inputs"
	"github.com/hapsnap/hapsnap/compiler/routing"
)

// pollInterval is how often a kind that the cluster does not know is asked for.
const pollInterval = 5 * time.Second

// Cluster is the objects of a cluster. Nothing is known of them until [Cluster.Run]
// runs. Its methods may be called at the same time.
type Cluster struct {
	name    string
	client  dynamic.Interface
	kinds   resolver
	poll    time.Duration
	changed chan struct{}
	replan  chan struct{}

	mu        sync.Mutex
	config    config.Config
	asked     routing.Asked
	planned   []Query // nil until the configuration is known
	followers map[Query]*follower
}

// New returns the cluster that a connection leads to.
func New(c Connection) *Cluster {
	return &Cluster{
		name: c.Name, client: c.Dynamic, kinds: resolver{c.Discovery}, poll: pollInterval,
		changed: make(chan struct{}, 1), replan: make(chan struct{}, 1), followers: map[Query]*follower{},
	}
}

// String names the cluster.
func (c *Cluster) String() string { return c.name }

// Run watches what the calls of Read and Complete ask for, until ctx is done.
func (c *Cluster) Run(ctx context.Context, log *slog.Logger) {
	var running sync.WaitGroup
	defer running.Wait()
	stops := map[Query]context.CancelFunc{}
	for {
		start, stop := c.difference()
		for _, q := range stop {
			stops[q]()
			delete(stops, q)
		}
		for _, f := range start {
			following, cancel := context.WithCancel(ctx)
			stops[f.query] = cancel
			running.Go(func() { f.run(following, c.client, c.kinds, c.poll, log) })
		}
		select {
		case <-ctx.Done():
			for _, cancel := range stops {
				cancel()
			}
			return
		case <-c.replan:
		}
	}
}

// difference brings the followers in line with the plan, and returns those to start
// and the queries to stop.
func (c *Cluster) difference() (start []*follower, stop []Query) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for q := range c.followers {
		if _, found := slices.BinarySearchFunc(c.planned, q, Query.compare); !found {
			delete(c.followers, q)
			stop = append(stop, q)
		}
	}
	for _, q := range c.planned {
		if c.followers[q] == nil {
			c.followers[q] = newFollower(q, func() { signal(c.changed) })
			start = append(start, c.followers[q])
		}
	}
	return start, stop
}

// Read returns the objects that the configuration asks for. The error wraps
// [inputs.ErrIncomplete] and says what is waited for until all of them are known.
func (c *Cluster) Read(_ context.Context, cfg config.Config) (inputs.Gathered, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.plan(cfg, c.asked)
	if missing := c.missing(); len(missing) > 0 {
		return inputs.Gathered{}, fmt.Errorf("%w: %s", inputs.ErrIncomplete, some(missing))
	}
	var in inputs.Inputs
	for _, q := range c.planned {
		c.followers[q].addTo(&in)
	}
	selector := inputs.NewSelector(cfg, in.Namespaces)
	return inputs.Gathered{Objects: selector.Objects(in)}, nil
}

// Complete takes note of the names that a compile met, and reports whether these
// objects were all known.
func (c *Cluster) Complete(named routing.Asked) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	before := c.planned
	c.plan(c.config, named)
	for _, q := range c.planned {
		if _, known := slices.BinarySearchFunc(before, q, Query.compare); !known {
			return false
		}
	}
	return true
}

// Changes sends when something may be different from what was read.
func (c *Cluster) Changes(context.Context, *slog.Logger) <-chan struct{} { return c.changed }

// plan takes a new plan, if it is one.
func (c *Cluster) plan(cfg config.Config, asked routing.Asked) {
	c.config, c.asked = cfg, asked
	planned := Plan(cfg, asked)
	if !slices.Equal(planned, c.planned) {
		c.planned = planned
		signal(c.replan)
	}
}

// missing returns what is not known yet of what is planned, and why.
func (c *Cluster) missing() []string {
	var out []string
	for _, q := range c.planned {
		f := c.followers[q]
		switch {
		case f == nil:
			out = append(out, q.String())
		case !f.settled():
			out = append(out, f.waits())
		}
	}
	return out
}

// maxShown is how many things a message lists.
const maxShown = 5

// some lists the first of many things.
func some(texts []string) string {
	if more := len(texts) - maxShown; more > 0 {
		return fmt.Sprintf("%s and %d more", strings.Join(texts[:maxShown], ", "), more)
	}
	return strings.Join(texts, ", ")
}

// signal sends without waiting: one signal on its way stands for all.
func signal(c chan<- struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}
