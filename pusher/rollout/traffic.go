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

// Minus returns the difference of two counters.
func (c Counters) Minus(o Counters) Counters {
	return Counters{c.Requests - o.Requests, c.Errors - o.Errors, c.Connections - o.Connections}
}

// share returns the share of requests with a 5xx response. A request may be counted before a base and its
// response after it, so the share is limited to sensible values.
func (c Counters) share() float64 {
	if c.Requests <= 0 {
		return 0
	}
	return min(1, float64(c.Errors)/float64(c.Requests))
}

// Rate is what was counted in a length of time.
type Rate struct {
	Counters
	For time.Duration `json:"for,omitempty"`
}

// leastPast is the least time of counting from which later traffic can be expected.
const leastPast = time.Minute

// expect returns how many connections a time of this length should bring. It is 0 if that is not known.
func (r Rate) expect(d time.Duration) float64 {
	if r.For < leastPast {
		return 0
	}
	return float64(r.Connections) * float64(d) / float64(r.For)
}

// Sample is what a worker has counted until a time. The zero value is none.
type Sample struct {
	Counters
	At  time.Time
	PID int
	// Age is the age of the worker.
	Age time.Duration
	// Down are the backends without a server up. Flapped are those that were down briefly a short time ago, or
	// more than once. Both are sorted.
	Down, Flapped []string
	// By are the 5xx responses of the backends that had some.
	By map[string]int64
	// Served are the requests of the backends that had some. Decisions do not use them.
	Served map[string]int64 `json:"-"`
	// Up is how many servers of each backend get requests. Decisions do not use it.
	Up ServersUp `json:"-"`
	// Past is the traffic of the worker in the last minutes.
	Past Rate
}

// ServersUp is how many servers of each backend get requests from a worker. Samples may share the sorted names:
// there may be 100,000 backends, and 100 instances that have the same.
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

// Base is where counting began for an instance.
type Base struct {
	Counters
	At   time.Time `json:"at"`
	PID  int       `json:"pid"`
	Past Rate      `json:"past,omitzero"`
	// By are the 5xx responses of backends that the worker had counted before.
	By map[string]int64 `json:"by,omitempty"`
}

// since returns what the worker has counted since the base. It reports false if the base is of another worker.
func (s Sample) since(b Base) (Rate, bool) {
	if s.At.IsZero() || b.PID != s.PID || !s.At.After(b.At) {
		return Rate{}, false
	}
	return Rate{s.Minus(b.Counters), s.At.Sub(b.At)}, true
}

// window is the traffic of several instances together: what they counted, and how many connections their past
// lets expect.
type window struct {
	Counters
	expected  float64
	connected int64 // of the instances for which an expectation is known
}

func (w window) with(now, before Rate) window {
	w.Counters = w.plus(now.Counters)
	if expected := before.expect(now.For); expected > 0 {
		w.expected += expected
		w.connected += now.Connections
	}
	return w
}

// CannotTell is what to do if there were too few requests to judge.
type CannotTell string

// The answers.
const (
	Proceed CannotTell = "proceed" // continue when the soak time is over
	Extend  CannotTell = "extend"  // wait for more requests, for some time
	HoldOn  CannotTell = "hold"    // wait for more requests, or a person's order
)

// Gate says by which statistics an instance counts as healthy.
type Gate struct {
	// Off turns the statistics off.
	Off bool
	// Requests is how many requests are needed to judge.
	Requests int64
	// Errors is the share of 5xx that is always tolerated. Times is how many times the share before, and the
	// share of the others, is tolerated.
	Errors, Times float64
	// Connections is the least tolerated share of the expected connections. 0 turns this check off.
	Connections float64
	// CannotTell is what to do if there were too few requests, and Extend is how much the soak time is extended
	// at most.
	CannotTell CannotTell
	Extend     time.Duration
	// Ignore are the frontends whose traffic is not from clients.
	Ignore []string
}

// verdict is what the statistics say about an instance.
type verdict int

const (
	well   verdict = iota
	unsure         // too few requests to judge
	alike          // something is wrong, also with the others
	apart          // something is wrong that the snapshot did not change
	sick
)

// errors judges the 5xx responses by those before and those of the others.
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

// connections judges whether clients still connect. If traffic is low everywhere, nothing is wrong.
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
