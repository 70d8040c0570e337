package pusher

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/hapsnap/hapsnap/pusher/cluster"
	"github.com/hapsnap/hapsnap/snapshots"
)

// aboutKept is what the trouble with endpoints that are kept is called.
const aboutKept = "live endpoints"

// losses is what the engine knows of the losses of its source; see liveGuard.
type losses struct {
	guard liveGuard
	// seeds are the Service ports of which only the state says what they have: the source
	// said nothing of them yet.
	seeds map[snapshots.ServicePort]bool
	// remembers is set where the state had a slot table.
	remembers bool
	// sighted is set once the source has shown that it has anything, or need not have.
	sighted   bool
	read      bool // the source was, in full
	sliceless bool // it has not one EndpointSlice
	// doubted are Secrets of a cluster that a list came without, and when.
	doubted map[snapshots.SecretName]time.Time
}

// newLosses begins with what the pusher before this one knew.
func newLosses(s state, known map[snapshots.ServicePort][]snapshots.Endpoint) losses {
	l := losses{seeds: map[snapshots.ServicePort]bool{}, doubted: map[snapshots.SecretName]time.Time{}, remembers: len(s.Slots) > 0}
	l.guard, _ = s.Kept.guard() // the state was read
	l.guard.blind = false       // that is found out anew
	for port := range known {
		l.seeds[port] = true
	}
	return l
}

// hearEndpoints takes what the source tells of Service ports, as far as it is believed, and
// reports whether that changed what is known.
func (e *engine) hearEndpoints(reports map[snapshots.ServicePort]report, now time.Time) bool {
	for port := range reports {
		delete(e.losses.seeds, port)
	}
	next, changes := e.losses.guard.take(e.live.Endpoints, reports, e.joined(), now)
	e.losses.guard = next
	e.changeEndpoints(changes, now)
	e.troubleWithLosses(now)
	return len(changes) > 0
}

func (e *engine) changeEndpoints(changes map[snapshots.ServicePort][]snapshots.Endpoint, now time.Time) {
	for port, endpoints := range changes {
		e.tally.change(port, e.live.Endpoints[port], endpoints, now)
		if e.bindings.changed[port] = true; len(endpoints) == 0 {
			delete(e.live.Endpoints, port)
		} else {
			e.live.Endpoints[port] = endpoints
		}
	}
}

// joined returns a function that reports whether a snapshot in use joins the endpoints
// of a Service port. What is in the slots is joined by one that may be at hand soon.
func (e *engine) joined() func(snapshots.ServicePort) bool {
	var all map[snapshots.ServicePort]bool
	return func(port snapshots.ServicePort) bool {
		if all == nil {
			all = map[snapshots.ServicePort]bool{}
			for key := range e.bindings.slots {
				all[key.Service] = true
			}
			for _, p := range e.bindings.prepared {
				for service := range p.byService {
					all[service] = true
				}
			}
		}
		return all[port]
	}
}

// reportsOf returns what a read of a directory tells. Where something could not be
// parsed, what is absent may be in there, and nothing is told of it.
func (e *engine) reportsOf(read liveData) map[snapshots.ServicePort]report {
	out := make(map[snapshots.ServicePort]report, len(read.Endpoints))
	for port, endpoints := range read.Endpoints {
		out[port] = report{endpoints: endpoints}
	}
	for port := range e.live.Endpoints {
		if _, there := read.Endpoints[port]; there || read.unsure {
			continue
		}
		out[port] = report{saying: read.evidence.of(port)}
	}
	return out
}

// reportsOfChange returns what a change of a cluster tells.
func (e *engine) reportsOfChange(c cluster.Change) map[snapshots.ServicePort]report {
	out := make(map[snapshots.ServicePort]report, len(c.Endpoints))
	for port, endpoints := range c.Endpoints {
		if out[port] = (report{endpoints: endpoints}); c.Unsaid[port] {
			out[port] = report{saying: unsaid}
		}
	}
	for _, of := range []map[snapshots.ServicePort]bool{e.losses.seeds, e.losses.guard.kept} {
		for port := range of {
			if _, told := c.Endpoints[port]; !told && c.Seen[snapshots.SecretName{Namespace: port.Namespace, Name: port.Service}] {
				out[port] = report{} // the Service has slices, and none of its endpoints is there
			}
		}
	}
	if c.Status == nil {
		return out
	}
	for port := range e.losses.seeds {
		if _, told := out[port]; !told && c.Status.Read(port.Namespace) {
			out[port] = report{saying: unsaid}
		}
	}
	return out
}

// blindStart reports whether a new pusher finds not one EndpointSlice, though the
// instances run with endpoints: a wrong path, an empty mount, another cluster. Then
// nothing is changed at all. Without a slot table in the state, instances that run one of
// our snapshots count as such, and so do those that do not answer.
func (e *engine) blindStart(now time.Time) bool {
	l := &e.losses
	if l.sighted || !l.read || e.bindings.from == fromSnapshots {
		return false
	}
	l.guard.blind = l.sliceless && e.runsWithEndpoints()
	l.guard = l.guard.at(now)
	l.sighted = !l.guard.blind
	e.troubleWithLosses(now)
	return l.guard.blind
}

func (e *engine) runsWithEndpoints() bool {
	if e.losses.remembers {
		return len(e.live.Endpoints) > 0
	}
	for _, i := range e.instances {
		p, atHand := e.bindings.prepared[i.snapshot()]
		if !i.reachable() || !i.snapshot().IsZero() && (!atHand || len(p.directives) > 0 && !p.recorded) {
			return true
		}
	}
	return false
}

// confirmLosses does what a person ordered in the channel: what was kept when they gave
// the order is believed to be gone.
func (e *engine) confirmLosses(now time.Time) {
	c := e.view.Channel.Spec.ConfirmEndpoints
	if c == nil || c.Loss != e.losses.guard.name() || c.Loss == "" {
		return
	}
	e.Log.Info("loss of endpoints confirmed", "loss", c.Loss, "by", c.By, "reason", c.Reason, "services", len(e.losses.guard.kept))
	next, changes := e.losses.guard.confirm()
	e.losses.guard, e.losses.sighted, e.dirty = next, true, true
	e.changeEndpoints(changes, now)
	e.troubleWithLosses(now)
}

// troubleWithLosses tells whose endpoints are kept.
func (e *engine) troubleWithLosses(now time.Time) {
	g := e.losses.guard
	var err error
	switch ports := g.ports(); {
	case g.blind:
		err = errors.New("not one EndpointSlice is there, and the instances run with endpoints: nothing is changed until there is one; if that is right: pusher confirm-endpoints " + g.name())
	case len(ports) > 0:
		err = fmt.Errorf("the endpoints of %s are gone from their source (%d in all): what was known is kept; if they are gone for good: pusher confirm-endpoints %s",
			cluster.Some(texts(ports)), len(ports), g.name())
	}
	e.trouble(aboutKept, err, now)
}

func texts(ports []snapshots.ServicePort) []string {
	out := make([]string, 0, len(ports))
	for _, port := range ports {
		out = append(out, port.String())
	}
	return out
}

// keptStatus returns what the status says of endpoints that are kept, nil for nothing.
func (e *engine) keptStatus() *KeptStatus {
	g := e.losses.guard
	if g.name() == "" {
		return nil
	}
	ports := g.ports()
	return &KeptStatus{Loss: g.name(), Since: g.since, Count: len(ports), Services: texts(ports[:min(len(ports), mostKept)])}
}

// mostKept is how many Service ports the status lists.
const mostKept = 100

// secretPatience is how long a Secret that a list came without is kept, to see whether
// its namespace lost its endpoints as well.
const secretPatience = 5 * time.Second

// doubtSecrets takes out of a change the Secrets that a list came without, and notes them.
func (l *losses) doubtSecrets(c *cluster.Change, now time.Time) {
	for name, s := range c.Secrets {
		delete(l.doubted, name)
		if s == nil && c.Missing[name] {
			delete(c.Secrets, name)
			l.doubted[name] = now
		}
	}
}

// settleSecrets forgets the Secrets that were missing in a list, unless endpoints of
// their namespace are kept: they may have been lost together.
func (e *engine) settleSecrets(now time.Time) {
	gone := cluster.Change{Secrets: map[snapshots.SecretName]*corev1.Secret{}}
	for name, at := range e.losses.doubted {
		if now.Sub(at) >= secretPatience && !e.losses.guard.keepsIn(name.Namespace) {
			gone.Secrets[name] = nil
			delete(e.losses.doubted, name)
		}
	}
	if len(gone.Secrets) > 0 {
		e.takeSecrets(gone, now)
	}
}

// keepsIn reports whether endpoints of a namespace are kept.
func (g liveGuard) keepsIn(namespace string) bool {
	return slices.ContainsFunc(slices.Collect(maps.Keys(g.kept)), func(p snapshots.ServicePort) bool { return p.Namespace == namespace })
}
