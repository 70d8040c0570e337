package cluster

import (
	"context"
	"fmt"
	"log/slog"
	"strings"
	"sync"

	"github.com/hapsnap/hapsnap/compiler/config"
	"github.com/hapsnap/hapsnap/compiler/inputs"
	"github.com/hapsnap/hapsnap/compiler/routing"
	"github.com/hapsnap/hapsnap/internal/kubewatch"
)

// Cluster is the objects of a cluster. Nothing is known of them until [Cluster.Run]
// runs. Its methods may be called at the same time.
type Cluster struct {
	name    string
	watches *kubewatch.Set

	mu     sync.Mutex
	config config.Config
	asked  routing.Asked
}

// New returns the cluster that a connection leads to.
func New(c Connection) *Cluster { return &Cluster{name: c.Name, watches: newSet(c)} }

// newSet returns watches whose objects are converted for compiles.
func newSet(c Connection) *kubewatch.Set {
	return kubewatch.New(kubewatch.Options{
		Open:    resolver{c.Discovery, c.Dynamic}.open,
		Convert: func(q kubewatch.Query) func(any) (any, error) { return converterFor(q).object },
		Equal:   equal,
	})
}

// String names the cluster.
func (c *Cluster) String() string { return c.name }

// Run watches what the calls of Read and Complete ask for, until ctx is done.
func (c *Cluster) Run(ctx context.Context, log *slog.Logger) { c.watches.Run(ctx, log) }

// Read returns the objects that the configuration asks for. The error wraps
// [inputs.ErrIncomplete] and says what is waited for until all of them are known.
func (c *Cluster) Read(_ context.Context, cfg config.Config) (inputs.Gathered, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.plan(cfg, c.asked)
	var in inputs.Inputs
	var missing []string
	c.watches.Read(func(list []kubewatch.Standing) {
		for _, s := range list {
			if !settled(s) {
				missing = append(missing, waits(s))
			}
		}
		if len(missing) > 0 {
			return
		}
		for _, s := range list {
			for _, o := range s.Objects {
				add(&in, s.Query, o)
			}
		}
	})
	if len(missing) > 0 {
		return inputs.Gathered{}, fmt.Errorf("%w: %s", inputs.ErrIncomplete, some(missing))
	}
	selector := inputs.NewSelector(cfg, in.Namespaces)
	return inputs.Gathered{Objects: selector.Objects(in)}, nil
}

// Complete takes note of the names that a compile met, and reports whether these
// objects were all known.
func (c *Cluster) Complete(named routing.Asked) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return !c.plan(c.config, named)
}

// Changes sends when something may be different from what was read.
func (c *Cluster) Changes(context.Context, *slog.Logger) <-chan struct{} { return c.watches.Changes() }

// plan takes a new plan, and reports whether it has anything that was not watched.
func (c *Cluster) plan(cfg config.Config, asked routing.Asked) (added bool) {
	c.config, c.asked = cfg, asked
	return c.watches.Plan(Plan(cfg, asked))
}

// settled reports whether all is known that can be: all objects, or that there is no
// such kind where it is optional, or that a single object may not be read. That harms
// only those who name it.
func settled(s kubewatch.Standing) bool {
	return s.Synced || s.Absent && s.Query.Optional || s.Query.Name != "" && s.Forbidden()
}

// waits says what is waited for.
func waits(s kubewatch.Standing) string {
	if s.Err == nil {
		return s.Query.String()
	}
	return fmt.Sprintf("%s (%v)", s.Query, s.Err)
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
