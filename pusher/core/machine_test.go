package core

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/hapsnap/hapsnap/pusher/binding"
	"github.com/hapsnap/hapsnap/pusher/instance"
	"github.com/hapsnap/hapsnap/pusher/report"
	"github.com/hapsnap/hapsnap/snapshots"
	"github.com/hapsnap/hapsnap/snapshots/dirstore"
)

// patience is how long a test waits.
const patience = time.Minute

// usual are settings as most pushers have them.
var usual = Settings{
	Source: binding.FromSnapshots, Cache: "cache", PollInterval: time.Second, DrainTime: 30 * time.Second, PersistInterval: 5 * time.Second,
	InspectInterval: time.Minute, CollectAfter: time.Hour,
}

// newMachine returns a machine with the usual settings.
func newMachine(s State, now time.Time) *Machine { return New(usual, s, nil, now) }

// driven is a machine whose steps a test takes. Its effects on instances are carried out. Its state is not
// saved.
type driven struct {
	*Machine
	store       *dirstore.Store
	connections *instance.Connections
	events      chan Event
	jobs        sync.WaitGroup
	waiting     []Event
	holds       func(instance.Event) bool // events that the machine does not hear of yet
	held        []Event
}

func newDriven(tb testing.TB, settings Settings, store *dirstore.Store) *driven {
	tb.Helper()
	d := &driven{
		Machine: New(settings, State{}, nil, time.Now()), store: store, events: make(chan Event, 64),
		connections: instance.New(instance.Options{PollInterval: time.Hour, ReloadTimeout: 30 * time.Second}, nil),
	}
	tb.Cleanup(d.jobs.Wait)
	return d
}

// step takes a step, and starts its effects.
func (d *driven) step(ctx context.Context) {
	for len(d.events) > 0 {
		d.take(<-d.events)
	}
	effects := d.Step(time.Now(), d.waiting...)
	d.waiting = nil
	for _, x := range effects {
		switch x := x.(type) {
		case OnInstance:
			run := d.connections.Job(x.Effect)
			d.jobs.Go(func() { run(ctx, func(ev instance.Event) { d.events <- OfInstance{ev} }) })
		case ReadSnapshot:
			s, err := d.store.Get(ctx, x.ID)
			d.waiting = append(d.waiting, SnapshotRead{x.ID, s, err})
		case SaveState:
			d.waiting = append(d.waiting, SaveEnded{Err: x.Err})
		}
	}
}

// take has the machine hear of an event in the next step, or later if it is held.
func (d *driven) take(ev Event) {
	if of, ok := ev.(OfInstance); ok && d.holds != nil && d.holds(of.Event) {
		d.held = append(d.held, ev)
		return
	}
	d.waiting = append(d.waiting, ev)
}

// release has the machine hear of the held events that are no longer held.
func (d *driven) release(holds func(instance.Event) bool) {
	held := d.held
	d.held, d.holds = nil, holds
	for _, ev := range held {
		d.take(ev)
	}
}

// wait waits for an event, until a time at most.
func (d *driven) wait(until <-chan time.Time) {
	select {
	case ev := <-d.events:
		d.take(ev)
	case <-until:
	}
}

// until takes steps until ok returns true.
func (d *driven) until(tb testing.TB, ok func() bool) {
	tb.Helper()
	for deadline := time.Now().Add(patience); ; {
		if d.step(tb.Context()); ok() {
			return
		}
		if time.Now().After(deadline) {
			tb.Fatalf("waited in vain: %+v", d.status())
		}
		if len(d.waiting) == 0 {
			d.wait(time.After(10 * time.Millisecond)) // the end of a soak is not an event
		}
	}
}

func (d *driven) status() report.Status { return d.reporting.status(time.Now()) }

func (d *driven) statusOf(name string) report.Instance {
	for _, i := range d.status().Instances {
		if i.Name == name {
			return i
		}
	}
	return report.Instance{}
}

// edgeConfig is a haproxy.cfg with a backend for each text. The texts are complete except for the backend line.
func edgeConfig(backends map[string]string) string {
	var b strings.Builder
	b.WriteString("global\n    maxconn 200\n\ndefaults\n    mode http\n    timeout connect 5s\n    timeout client 2m\n    timeout server 2m\n\n" +
		"frontend edge\n    bind \"${WEB}\"\n    use_backend %[req.hdr(x-backend)]\n")
	for name, text := range backends {
		fmt.Fprintf(&b, "\nbackend %s\n    %s\n", name, text)
	}
	return b.String()
}

func httpPort(service string) snapshots.ServicePort {
	return snapshots.ServicePort{Namespace: "shop", Service: service, Port: "http"}
}

// sp parses a Service port such as "a/x".
func sp(text string) snapshots.ServicePort {
	port, err := snapshots.ParseServicePort(text)
	if err != nil {
		panic(err)
	}
	return port
}
