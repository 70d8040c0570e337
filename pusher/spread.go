package pusher

import "time"

// The kinds of changes whose way to the instances is timed.
const (
	spreadEndpoints = "endpoints"
	spreadSecrets   = "secrets"
)

// spread times how long changes in a cluster take until all instances have them.
type spread struct {
	seen    []time.Time            // of endpoints, which nothing was made of yet
	pending map[string][]time.Time // on their way, by kind
}

// maxSpread bounds how many changes are on their way while an instance cannot take
// them.
const maxSpread = 1000

// came notes endpoints that changed, which may concern no snapshot.
func (s *spread) came(since []time.Time) { s.seen = append(s.seen, since...) }

// assigned notes that those concern servers.
func (s *spread) assigned() {
	s.begin(spreadEndpoints, s.seen)
	s.seen = nil
}

// begin notes changes that instances are to get.
func (s *spread) begin(kind string, since []time.Time) {
	if s.pending == nil {
		s.pending = map[string][]time.Time{}
	}
	room := maxSpread - len(s.pending[kind])
	s.pending[kind] = append(s.pending[kind], since[:min(len(since), max(room, 0))]...)
}

// observeSpread observes the times of what all instances in reach have by now.
func (e *engine) observeSpread(now time.Time) {
	e.spread.seen = nil
	if len(e.spread.pending) == 0 {
		return
	}
	for _, i := range e.instances {
		if i.busy == workPush || i.busy == workUpdate || !arrived(e.standing(i)) {
			return
		}
	}
	for kind, times := range e.spread.pending {
		for _, at := range times {
			e.metrics.propagation.WithLabelValues(kind).Observe(now.Sub(at).Seconds())
		}
	}
	e.spread.pending = nil
}

// arrived reports whether the worker has all that is live, whatever the instance is busy
// with: one that writes its file meanwhile may not have begun to change the worker. One
// that is out of reach, or whose snapshot cannot be bound, is not waited for.
func arrived(s standing) bool {
	return !s.Reachable || !s.Bound || s.SameNode && s.SameServers && s.SameMaps && s.SameCertificates
}
