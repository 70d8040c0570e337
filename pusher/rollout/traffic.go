package rollout

import (
	"slices"
	"time"
)

// Counters are what a worker has counted since it started.
type Counters struct {
	Requests    int64 `json:"requests,omitempty"`
	Errors      int64 `json:"errors,omitempty"` // answers with 5xx
	Connections int64 `json:"connections,omitempty"`
}

func (c Counters) plus(o Counters) Counters {
	return Counters{c.Requests + o.Requests, c.Errors + o.Errors, c.Connections + o.Connections}
}

// Minus returns what was counted since.
func (c Counters) Minus(o Counters) Counters {
	return Counters{c.Requests - o.Requests, c.Errors - o.Errors, c.Connections - o.Connections}
}

// share returns the share of requests that were answered with 5xx. A request and its
// answer may be counted at either side of a base.
func (c Counters) share() float64 {
	if c.Requests <= 0 {
		return 0
	}
	return min(1, float64(c.Errors)/float64(c.Requests))
}

// Rate is what was counted in a time.
type Rate struct {
	Counters
	For time.Duration `json:"for,omitempty"`
}

// leastPast is how long something must have been counted to expect that it goes on.
const leastPast = time.Minute

// expect returns how many connections would come in a time, if it went on so; 0 if
// nobody can tell.
func (r Rate) expect(d time.Duration) float64 {
	if r.For < leastPast {
		return 0
	}
	return float64(r.Connections) * float64(d) / float64(r.For)
}

// Sample is what a worker counted until a time; the zero value is none.
type Sample struct {
	Counters
	At  time.Time
	PID int
	// Age is how old the worker was.
	Age time.Duration
	// Down are the backends none of whose servers is up, and Flapped those that were so
	// for a moment not long ago, or more than once; sorted.
	Down, Flapped []string
	// By are the 5xx of backends that answered any.
	By map[string]int64
	// Served are the requests of backends that got any. Decisions do not look at them.
	Served map[string]int64 `json:"-"`
	// Up says how many servers of each backend get requests. Decisions do not look at it.
	Up ServersUp `json:"-"`
	// Past is the traffic of that worker in the last minutes.
	Past Rate
}

// ServersUp says how many servers of each backend a worker sends requests to. The names are sorted, and may be
// those of other samples too: there may be 100,000 backends, and 100 instances that have the same.
type ServersUp struct {
	Backends []string
	Counts   []uint16
}

// Of returns how many servers of a backend are up, and whether the worker has that backend.
func (u ServersUp) Of(backend string) (up int, known bool) {
	i, known := slices.BinarySearch(u.Backends, backend)
	if !known {
		return 0, false
	}
	return int(u.Counts[i]), true
}

// Base is where counting began for one instance.
type Base struct {
	Counters
	At   time.Time `json:"at"`
	PID  int       `json:"pid"`
	Past Rate      `json:"past,omitzero"`
	// By are the 5xx of backends, where the worker had served before.
	By map[string]int64 `json:"by,omitempty"`
}

// since returns what the worker counted since the base, nothing if it is another
// worker.
func (s Sample) since(b Base) (Rate, bool) {
	if s.At.IsZero() || b.PID != s.PID || !s.At.After(b.At) {
		return Rate{}, false
	}
	return Rate{s.Minus(b.Counters), s.At.Sub(b.At)}, true
}

// window is the traffic of several instances, side by side: what they counted, and how
// many connections they could expect by their past.
type window struct {
	Counters
	expected  float64
	connected int64 // of those of which it is known what to expect
}

func (w window) with(now, before Rate) window {
	w.Counters = w.plus(now.Counters)
	if expected := before.expect(now.For); expected > 0 {
		w.expected += expected
		w.connected += now.Connections
	}
	return w
}

// CannotTell is what to do where there were too few requests to judge by.
type CannotTell string

// The answers.
const (
	Proceed CannotTell = "proceed" // go on when the soak time is over
	Extend  CannotTell = "extend"  // wait for more requests, for some time
	HoldOn  CannotTell = "hold"    // wait for more requests, or a person's order
)

// Gate says by which statistics of its own an instance is healthy.
type Gate struct {
	// Off leaves the statistics alone.
	Off bool
	// Requests is how many there must have been to judge by.
	Requests int64
	// Errors is the share of 5xx that is tolerated in any case, and Times how many
	// times the share before, and that of the others, is.
	Errors, Times float64
	// Connections is the share of the connections to be expected below which
	// something is wrong; 0 is not to look.
	Connections float64
	// CannotTell is what to do if that cannot be said, and Extend how long at most
	// the soak time is extended.
	CannotTell CannotTell
	Extend     time.Duration
	// Ignore are the frontends whose traffic is no client's.
	Ignore []string
}

// verdict is what statistics say of an instance.
type verdict int

const (
	well   verdict = iota
	unsure         // there is too little to judge by
	alike          // something is wrong, with the others too
	apart          // something is wrong that the snapshot did not change
	sick
)

// errors judges the answers with 5xx by those before and those of others.
func (g Gate) errors(now, before, others Counters) verdict {
	if now.Requests < max(g.Requests, 1) {
		return unsure
	}
	limit := func(c Counters) float64 {
		if c.Requests < max(g.Requests, 1) {
			return g.Errors
		}
		return max(g.Errors, g.Times*c.share())
	}
	switch {
	case now.share() <= limit(before):
		return well
	case now.share() <= limit(others):
		return alike
	}
	return sick
}

// connections judges whether clients still come, while they come to the others: where it
// is quiet everywhere, nothing is wrong.
func (g Gate) connections(now, others window) verdict {
	enough := float64(max(g.Requests, 1))
	if g.Connections <= 0 || now.expected < enough || others.expected < enough {
		return well
	}
	share, usual := float64(now.connected)/now.expected, float64(others.connected)/others.expected
	if share >= g.Connections*min(1, usual) {
		return well
	}
	return sick
}
