package pusher

import (
	"log/slog"
	"slices"
	"time"

	"github.com/hapsnap/hapsnap/snapshots"
)

// tallyInterval is how often changes of endpoints are logged, as a sum: there may be many
// a second.
const tallyInterval = 10 * time.Second

// tally sums up how endpoints changed since it was logged last.
type tally struct {
	since          time.Time // of the first change, zero for none
	services       map[snapshots.ServicePort]bool
	added, removed int
	instances      map[string]bool // that were changed for it at run time
}

// change notes that the endpoints of a Service are others.
func (t *tally) change(port snapshots.ServicePort, old, next []snapshots.Endpoint, now time.Time) {
	added, removed := without(next, old), without(old, next) // one that drains is gone
	if added+removed == 0 {
		return
	}
	if t.since.IsZero() {
		*t = tally{since: now, services: map[snapshots.ServicePort]bool{}, instances: map[string]bool{}}
	}
	t.services[port] = true
	t.added, t.removed = t.added+added, t.removed+removed
}

// without counts the endpoints of one list that take traffic, and do not by the other.
func without(list, other []snapshots.Endpoint) (n int) {
	for _, e := range list {
		if !e.Draining && !slices.Contains(other, e) {
			n++
		}
	}
	return n
}

// changed notes an instance that was brought to it.
func (t *tally) changed(instance string) {
	if !t.since.IsZero() {
		t.instances[instance] = true
	}
}

// log tells of the changes once the interval is over.
func (t *tally) log(log *slog.Logger, now time.Time) {
	if t.since.IsZero() || now.Sub(t.since) < tallyInterval {
		return
	}
	log.Info("endpoints changed", "services", len(t.services), "added", t.added, "removed", t.removed, "instances", len(t.instances), "within", tallyInterval)
	*t = tally{}
}
