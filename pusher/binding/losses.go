package binding

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/hapsnap/hapsnap/pusher/cluster"
	"github.com/hapsnap/hapsnap/snapshots"
)

// losses is what is known of the losses of a source; see lossGuard.
type losses struct {
	guard lossGuard
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
func newLosses(kept *KeptEndpoints, known map[snapshots.ServicePort][]snapshots.Endpoint, remembers bool) losses {
	l := losses{seeds: map[snapshots.ServicePort]bool{}, doubted: map[snapshots.SecretName]time.Time{}, remembers: remembers}
	l.guard, _ = kept.guard() // the state was read
	l.guard.blind = false     // that is found out anew
	for port := range known {
		l.seeds[port] = true
	}
	return l
}

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

// keepsIn reports whether endpoints of a namespace are kept.
func (g lossGuard) keepsIn(namespace string) bool {
	return slices.ContainsFunc(slices.Collect(maps.Keys(g.kept)), func(p snapshots.ServicePort) bool { return p.Namespace == namespace })
}

// takeReports takes what the source reports of Service ports, as far as the guard believes it.
func (s *Sources) takeReports(reports map[snapshots.ServicePort]report, now time.Time) News {
	for port := range reports {
		delete(s.losses.seeds, port)
	}
	next, changes := s.losses.guard.take(s.known.Endpoints, reports, s.joined(), now)
	s.losses.guard = next
	return s.change(changes)
}

// change changes the endpoints that are known.
func (s *Sources) change(changes map[snapshots.ServicePort][]snapshots.Endpoint) News {
	var n News
	for port, endpoints := range changes {
		n.Changes = append(n.Changes, EndpointsChange{port, s.known.Endpoints[port], endpoints})
		if s.bindings.changed[port] = true; len(endpoints) == 0 {
			delete(s.known.Endpoints, port)
		} else {
			s.known.Endpoints[port] = endpoints
		}
	}
	return n
}

// joined returns a function that reports whether a snapshot in use joins the endpoints
// of a Service port. A port in the slots counts: its snapshot may be read soon.
func (s *Sources) joined() func(snapshots.ServicePort) bool {
	var all map[snapshots.ServicePort]bool
	return func(port snapshots.ServicePort) bool {
		if all == nil {
			all = map[snapshots.ServicePort]bool{}
			for key := range s.bindings.slots {
				all[key.Service] = true
			}
			for _, p := range s.bindings.prepared {
				for service := range p.byService {
					all[service] = true
				}
			}
		}
		return all[port]
	}
}

// reportsOf returns the reports of a read of a directory. If something could not be
// parsed, absent endpoints may be in there, and are not reported.
func (s *Sources) reportsOf(read Objects) map[snapshots.ServicePort]report {
	out := make(map[snapshots.ServicePort]report, len(read.Endpoints))
	for port, endpoints := range read.Endpoints {
		out[port] = report{endpoints: endpoints}
	}
	for port := range s.known.Endpoints {
		if _, there := read.Endpoints[port]; there || read.unsure {
			continue
		}
		out[port] = report{saying: read.evidence.of(port)}
	}
	return out
}

// reportsOfChange returns the reports of a change of a cluster.
func (s *Sources) reportsOfChange(c cluster.Change) map[snapshots.ServicePort]report {
	out := make(map[snapshots.ServicePort]report, len(c.Endpoints))
	for port, endpoints := range c.Endpoints {
		if out[port] = (report{endpoints: endpoints}); c.Unsaid[port] {
			out[port] = report{saying: unsaid}
		}
	}
	for _, of := range []map[snapshots.ServicePort]bool{s.losses.seeds, s.losses.guard.kept} {
		for port := range of {
			if _, told := c.Endpoints[port]; !told && c.Seen[types.NamespacedName{Namespace: port.Namespace, Name: port.Service}] {
				out[port] = report{} // the Service has slices, and none of its endpoints is there
			}
		}
	}
	if c.Status == nil {
		return out
	}
	for port := range s.losses.seeds {
		if _, told := out[port]; !told && c.Status.Read(port.Namespace) {
			out[port] = report{saying: unsaid}
		}
	}
	return out
}

// Blind reports whether a new pusher finds not one EndpointSlice, though the instances run
// with endpoints: a wrong path, an empty mount, another cluster. Then nothing is changed at
// all. Without a slot table in the state the instances are looked at; see mayHaveEndpoints.
func (s *Sources) Blind(instancesHave func() bool, now time.Time) bool {
	l := &s.losses
	if l.sighted || !l.read || s.bindings.from == FromSnapshots {
		return false
	}
	have := len(s.known.Endpoints) > 0
	if !l.remembers {
		have = instancesHave()
	}
	l.guard.blind = l.sliceless && have
	l.guard = l.guard.at(now)
	l.sighted = !l.guard.blind
	return l.guard.blind
}

// MayHaveEndpoints reports whether an instance that runs a snapshot may have endpoints: it runs
// one of ours.
func (s *Sources) MayHaveEndpoints(running snapshots.ID) bool {
	p, atHand := s.bindings.prepared[running]
	return !running.IsZero() && (!atHand || len(p.Directives) > 0 && !p.Recorded)
}

// Confirm believes the loss that a person named, and returns of how many Service ports it was. The
// endpoints that were kept when the person gave the order are gone.
func (s *Sources) Confirm(loss string) (n News, services int, confirmed bool) {
	if loss == "" || loss != s.losses.guard.name() {
		return News{}, 0, false
	}
	services = len(s.losses.guard.kept)
	next, changes := s.losses.guard.confirm()
	s.losses.guard, s.losses.sighted = next, true
	return s.change(changes), services, true
}

// Kept returns the losses that are not believed: their name, for a person to confirm, since when
// there are some, and the Service ports whose endpoints are kept. The name is "" if there are none.
func (s *Sources) Kept() (name string, since time.Time, ports []string) {
	g := s.losses.guard
	return g.name(), g.since, texts(g.ports())
}

// Lost returns how many Service ports have endpoints that are kept.
func (s *Sources) Lost() int { return len(s.losses.guard.kept) }

// Saved returns what the state is to hold of the losses, nil for nothing.
func (s *Sources) Saved() *KeptEndpoints { return s.losses.guard.saved() }

// LossTrouble returns an error that says whose endpoints are kept, nil for none.
func (s *Sources) LossTrouble() error {
	g := s.losses.guard
	if g.since.IsZero() {
		return nil
	}
	if g.blind {
		return errors.New("not one EndpointSlice is there, and the instances run with endpoints: nothing is changed until there is one; if that is right: pusher confirm-endpoints " + g.name())
	}
	ports := g.ports()
	if len(ports) == 0 {
		return nil
	}
	return fmt.Errorf("the endpoints of %s are gone from their source (%d in all): what was known is kept; if they are gone for good: pusher confirm-endpoints %s",
		cluster.Some(texts(ports)), len(ports), g.name())
}

func texts(ports []snapshots.ServicePort) []string {
	out := make([]string, 0, len(ports))
	for _, port := range ports {
		out = append(out, port.String())
	}
	return out
}
