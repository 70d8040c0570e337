package cluster

import (
	"context"
	"slices"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/hapsnap/hapsnap/snapshots"
)

// Cluster is the objects of a cluster. Nothing is known of them until
// [Cluster.Run] runs and [Cluster.Want] said what to look for. Its methods may be
// called at the same time.
type Cluster struct {
	connection    Connection
	allNamespaces bool
	changed       chan struct{}
	replan        chan struct{}

	mu        sync.Mutex
	planned   []Query
	followers map[Query]*follower
	slices    *index
	secrets   map[snapshots.SecretName]*corev1.Secret // changed since Take; nil: gone
	missing   map[snapshots.SecretName]bool           // of these, since a list came without them
	since     []time.Time                             // when they did
	news      bool                                    // the status may be another one
}

// New returns the cluster that a connection leads to. With allNamespaces, one watch
// has the EndpointSlices of them all.
func New(c Connection, allNamespaces bool) *Cluster {
	return &Cluster{
		connection: c, allNamespaces: allNamespaces, changed: make(chan struct{}, 1), replan: make(chan struct{}, 1),
		followers: map[Query]*follower{}, slices: newIndex(), secrets: map[snapshots.SecretName]*corev1.Secret{}, missing: map[snapshots.SecretName]bool{},
	}
}

// String names the cluster.
func (c *Cluster) String() string { return c.connection.Name }

// Want says what is needed from now on, in place of what was said before. What is
// needed no longer is forgotten.
func (c *Cluster) Want(w Wanted) {
	planned := Plan(w, c.allNamespaces)
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.planned != nil && slices.Equal(planned, c.planned) {
		return
	}
	c.planned = append([]Query{}, planned...)
	c.tell()
	signal(c.replan)
}

// Run watches what is wanted, until ctx is done. Then nothing is known any more, and it
// may run again.
func (c *Cluster) Run(ctx context.Context) {
	defer c.forget()
	var running sync.WaitGroup
	defer running.Wait()
	for {
		for _, f := range c.difference(ctx) {
			running.Go(func() { f.run(f.following, c.connection) })
		}
		select {
		case <-ctx.Done():
			return
		case <-c.replan:
		}
	}
}

// forget makes the cluster one of which nothing is known.
func (c *Cluster) forget() {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, f := range c.followers {
		f.ended = true // it may still hear of something
	}
	c.planned, c.followers, c.slices, c.news = nil, map[Query]*follower{}, newIndex(), false
	c.secrets, c.missing, c.since = map[snapshots.SecretName]*corev1.Secret{}, map[snapshots.SecretName]bool{}, nil
}

// difference brings the followers in line with the plan, and returns those to start.
func (c *Cluster) difference(ctx context.Context) (start []*follower) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for q, f := range c.followers {
		if _, found := slices.BinarySearchFunc(c.planned, q, Query.compare); !found {
			delete(c.followers, q)
			f.end()
			c.tell()
		}
	}
	for _, q := range c.planned {
		if c.followers[q] == nil {
			c.followers[q] = newFollower(ctx, q, c)
			start = append(start, c.followers[q])
		}
	}
	return start
}

// Changes sends when Take has something new.
func (c *Cluster) Changes() <-chan struct{} { return c.changed }

// tell has Take called, for the sake of the status too.
func (c *Cluster) tell() {
	c.news = true
	signal(c.changed)
}

// Change is what changed since the one before.
type Change struct {
	// Endpoints are those of each Service port that has others than before, nil for
	// one that has none any more.
	Endpoints map[snapshots.ServicePort][]snapshots.Endpoint
	// Unsaid are those of them that have none any more since a list came without their
	// EndpointSlices. Nobody said that these were deleted.
	Unsaid map[snapshots.ServicePort]bool
	// Seen are the Services, by namespace and name, of which EndpointSlices changed and
	// some are there, with or without endpoints.
	Seen map[snapshots.SecretName]bool
	// Secrets are those that changed, nil for one that is not there any more.
	Secrets map[snapshots.SecretName]*corev1.Secret
	// Missing are those of them that are not there any more since a list came without them.
	Missing map[snapshots.SecretName]bool
	// Since are the times of the changes, as far as they can be told.
	Since []time.Time
	// Status is what is known now, nil if that is what was known before.
	Status *Status
}

// Take returns what changed since it was called last.
func (c *Cluster) Take() Change {
	c.mu.Lock()
	defer c.mu.Unlock()
	var out Change
	if c.news {
		status := statusOf(c.allNamespaces, c.standings())
		out.Status, c.news = &status, false
	}
	c.slices.take(&out)
	out.Secrets, out.Missing, out.Since = c.secrets, c.missing, append(out.Since, c.since...)
	c.secrets, c.missing, c.since = map[snapshots.SecretName]*corev1.Secret{}, map[snapshots.SecretName]bool{}, nil
	return out
}

// standings returns how the queries of the plan stand.
func (c *Cluster) standings() []standing {
	out := make([]standing, 0, len(c.planned))
	for _, q := range c.planned {
		if f := c.followers[q]; f != nil {
			out = append(out, f.standing())
		} else {
			out = append(out, standing{query: q})
		}
	}
	return out
}

// signal sends without waiting: one signal on its way stands for all.
func signal(c chan<- struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}
