package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/hapsnap/hapsnap/pusher/cluster"
	"github.com/hapsnap/hapsnap/pusher/dataplane"
	"github.com/hapsnap/hapsnap/snapshots"
)

// endpointRows are the rows about endpoints.
var endpointRows = []row{
	{name: "endpoint", what: "an endpoint replaced by another, from the event until the worker has it", limit: "the three calls that this takes, made bare", goal: 1.3, unit: seconds, most: 10_000, measure: shown("endpoint", oneEndpoint)},
	{name: "endpoint-slow", what: "the slow ones of a thousand such changes: 99 of 100 take less", limit: "their median", goal: 3, unit: seconds, most: 10_000, measure: shown("endpoint-slow", oneEndpoint)},
	{name: "endpoints-rate", what: "a thousand endpoints changed in each of five seconds, on three instances: what is left to do then", limit: oneSecond, goal: 1, unit: seconds, most: 10_000, measure: shown("endpoints-rate", manyEndpoints)},
	{name: "endpoints-storm", what: "every Service has another endpoint at once, on three instances, until all have them", limit: "a millisecond for each", goal: 1, unit: seconds, most: 10_000, measure: shown("endpoints-storm", manyEndpoints)},
	{name: "endpoints-calls", what: "the same", limit: "the three calls for each that this takes, made bare on the three instances at once", goal: 1.3, unit: seconds, most: 10_000, measure: shown("endpoints-calls", manyEndpoints)},
	{name: "endpoints-others", what: "the endpoint of another Service meanwhile, the slowest of them", limit: oneSecond, goal: 1, unit: seconds, most: 10_000, measure: shown("endpoints-others", manyEndpoints)},
}

// The changes of endpoints in the rows about many.
const (
	oneByOne     = 1000 // for the slow ones among them
	perSecond    = 1000
	forSeconds   = 5
	batch        = 10 * time.Millisecond // of changes that come at the same time
	betweenProbe = 200 * time.Millisecond
)

// changing are instances whose endpoints change.
type changing struct {
	*led
	edges []edge
	ports []snapshots.ServicePort
	// backends are those of the ports.
	backends map[string]string
	came     int
}

// backendsOf returns the name of a backend with the endpoints of each Service port.
func backendsOf(d snapshots.Draft) map[string]string {
	out, backend := map[string]string{}, ""
	for _, f := range d.Files {
		if f.Path != snapshots.ConfigFile {
			continue
		}
		for line := range strings.Lines(string(f.Content)) {
			words := strings.Fields(line)
			switch {
			case len(words) > 1 && words[0] == "backend":
				backend = words[1]
			case len(words) > 2 && words[0] == "#hapsnap" && words[1] == "servers":
				out[words[2]] = backend
			}
		}
	}
	return out
}

// newChanging starts so many instances with the world, and a pusher that has brought them to run it.
func newChanging(ctx context.Context, w *world, instances int) (_ *changing, end func(), err error) {
	at := w.atEdges()
	r, err := at.first(ctx)
	if err != nil {
		return nil, nil, err
	}
	feed, err := newFeed(at.objects)
	if err != nil {
		return nil, nil, err
	}
	c := &changing{}
	if c.edges, err = w.startEdges(instances); err != nil {
		return nil, nil, err
	}
	end = func() {
		if c.led != nil {
			_ = c.led.end()
		}
		closeEdges(c.edges)
	}
	defer func() {
		if err != nil {
			end()
		}
	}()
	var entries []string
	for _, e := range c.edges {
		entries = append(entries, e.entry())
	}
	fleet, err := w.fleetFile(entries, unlimited)
	if err != nil {
		return nil, nil, err
	}
	if c.led, err = w.lead(ctx, fleet, r.Draft, feed); err != nil {
		return nil, nil, err
	}
	c.backends = backendsOf(r.Draft)
	for port := range feed.endpoints {
		c.ports = append(c.ports, port)
	}
	slices.SortFunc(c.ports, snapshots.ServicePort.Compare)
	return c, end, c.until(ctx, settled(instances))
}

// replacement has another address take the place of the first endpoint of a Service.
func (c *changing) replacement(port snapshots.ServicePort) []snapshots.Endpoint {
	c.came++
	list := slices.Clone(c.feed.endpoints[port])
	list[0].Address = fmt.Sprintf("172.%d.%d.%d", 16+c.came>>16, c.came>>8&255, c.came&255)
	return list
}

// changeOf is that of some Services which get another endpoint each, at once.
func (c *changing) changeOf(ports ...snapshots.ServicePort) cluster.Change {
	change := cluster.Change{Endpoints: map[snapshots.ServicePort][]snapshots.Endpoint{}, Since: []time.Time{time.Now()}}
	for _, port := range ports {
		change.Endpoints[port] = c.replacement(port)
	}
	return change
}

// oneEndpoint measures an endpoint that changes on one instance.
func oneEndpoint(ctx context.Context, w *world) (showing, error) {
	c, end, err := newChanging(ctx, w, 1)
	if err != nil {
		return nil, err
	}
	defer end()
	client, err := c.edges[0].client()
	if err != nil {
		return nil, err
	}
	bare, err := c.bareChange(ctx, client, c.ports[len(c.ports)-1])
	if err != nil {
		return nil, err
	}
	n := 0
	one := func() error {
		n++
		return c.change(ctx, c.changeOf(c.ports[n*7%(len(c.ports)-1)]), 1) // the last is for the bare calls
	}
	first, err := w.inTurns(ctx, bare, plain(one))
	if err != nil {
		return nil, err
	}
	var took []time.Duration
	for range oneByOne {
		began := time.Now()
		if err := one(); err != nil {
			return nil, err
		}
		took = append(took, time.Since(began))
	}
	slow := Cell{Limit: median(took).Seconds(), Work: slices.Sorted(slices.Values(took))[len(took)*99/100].Seconds(), Turns: oneByOne}
	return showing{"endpoint": first, "endpoint-slow": slow}, nil
}

// bareChange are the calls that it takes to replace an endpoint: a slot that is free gets an address, and is made
// ready, and the former one is drained. They are made of a server whose endpoint stays.
func (c *changing) bareChange(ctx context.Context, client *dataplane.Client, port snapshots.ServicePort) (step, error) {
	backend := c.backends[port.String()]
	list, err := client.Servers(ctx, backend)
	if err != nil || len(list) == 0 {
		return nil, errors.Join(err, fmt.Errorf("backend %q has %d servers", backend, len(list)))
	}
	return plain(func() error {
		for _, state := range []string{dataplane.StateDrain, dataplane.StateDrain, dataplane.StateReady} {
			if _, err := client.SetServer(ctx, backend, list[0].Name, dataplane.ServerChange{AdminState: state}); err != nil {
				return err
			}
		}
		return nil
	}), nil
}

// manyEndpoints measures many that change on three instances.
func manyEndpoints(ctx context.Context, w *world) (showing, error) {
	c, end, err := newChanging(ctx, w, 3)
	if err != nil {
		return nil, err
	}
	defer end()
	rest, err := c.sustained(ctx)
	if err != nil {
		return nil, err
	}
	all, other, err := c.storm(ctx)
	if err != nil {
		return nil, err
	}
	bare, err := c.bareStorm(ctx)
	if err != nil {
		return nil, err
	}
	return showing{
		"endpoints-calls":  {Limit: bare.Seconds(), Work: all.Seconds(), Turns: 1},
		"endpoints-rate":   {Limit: 1, Work: rest.Seconds(), Turns: 1},
		"endpoints-storm":  {Limit: float64(len(c.ports)) / perSecond, Work: all.Seconds(), Turns: 1},
		"endpoints-others": {Limit: 1, Work: other.Seconds(), Turns: 1},
	}, nil
}

// sustained has endpoints change at a steady rate, and returns how long the last of them take.
func (c *changing) sustained(ctx context.Context) (time.Duration, error) {
	tick := time.NewTicker(batch)
	defer tick.Stop()
	began, sent := time.Now(), 0
	for sent < perSecond*forSeconds {
		select {
		case <-ctx.Done():
			return 0, ctx.Err()
		case <-tick.C:
		}
		var ports []snapshots.ServicePort
		for due := int(time.Since(began) * perSecond / time.Second); sent < min(due, perSecond*forSeconds); sent++ {
			ports = append(ports, c.ports[sent*7%len(c.ports)])
		}
		c.feed.send(c.changeOf(ports...))
	}
	ended := time.Now()
	err := c.change(ctx, c.changeOf(c.ports[0]), len(c.edges))
	return time.Since(ended), err
}

// storm has all Services but one get another endpoint at once, and that one again and again meanwhile.
func (c *changing) storm(ctx context.Context) (all, slowest time.Duration, err error) {
	last := c.ports[len(c.ports)-1]
	change, began, over := c.changeOf(c.ports[:len(c.ports)-1]...), time.Now(), make(chan error, 1)
	go func() { over <- c.change(ctx, change, len(c.edges)) }()
	for {
		select {
		case err := <-over:
			return time.Since(began), slowest, err
		case <-time.After(betweenProbe):
		}
		took, err := c.probe(ctx, last)
		if err != nil {
			return 0, 0, err
		}
		slowest = max(slowest, took)
	}
}

// bareStorm makes the calls of a storm without a pusher: one after the other, on all instances at the same time.
func (c *changing) bareStorm(ctx context.Context) (time.Duration, error) {
	var calls []func() error // on one instance
	for _, e := range c.edges {
		client, err := e.client()
		if err != nil {
			return 0, err
		}
		var bare []func() error
		for _, port := range c.ports {
			prepare, err := c.bareChange(ctx, client, port)
			if err != nil {
				return 0, err
			}
			one, err := prepare(ctx)
			if err != nil {
				return 0, err
			}
			bare = append(bare, one)
		}
		calls = append(calls, func() error {
			for _, one := range bare {
				if err := one(); err != nil {
					return err
				}
			}
			return nil
		})
	}
	var group errgroup.Group
	began := time.Now()
	for _, all := range calls {
		group.Go(all)
	}
	err := group.Wait()
	return time.Since(began), err
}

// probe changes one endpoint, and asks the workers themselves until they have it.
func (c *changing) probe(ctx context.Context, port snapshots.ServicePort) (time.Duration, error) {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	began := time.Now()
	c.feed.send(c.changeOf(port))
	address := fmt.Sprintf("172.%d.%d.%d", 16+c.came>>16, c.came>>8&255, c.came&255)
	for _, e := range c.edges {
		for {
			servers, err := e.Socket("show servers state " + c.backends[port.String()])
			if err != nil {
				return 0, err
			}
			if strings.Contains(servers, " "+address+" ") {
				break
			}
			select {
			case <-ctx.Done():
				return 0, fmt.Errorf("%s has no server %s of %s: %w", e.name, address, port, ctx.Err())
			case <-time.After(time.Millisecond):
			}
		}
	}
	return time.Since(began), nil
}
