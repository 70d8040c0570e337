package ui

import (
	"context"
	"maps"
	"net/netip"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/hapsnap/hapsnap/pusher/observe"
	"github.com/hapsnap/hapsnap/pusher/report"
	"github.com/hapsnap/hapsnap/pusher/rollout"
	"github.com/hapsnap/hapsnap/snapshots"
)

// Live is what only a running pusher knows, apart from its status.
type Live struct {
	// Waves are the sizes of the waves, Soak is the soak time, and Gate has the figures that the gate compares.
	Waves []rollout.WaveSize
	Soak  time.Duration
	Gate  *rollout.Figures
	// Budget is what is left of the budget of reloads.
	Budget rollout.Left
	// Instances are the instances by name.
	Instances map[string]LiveInstance
	// Endpoints are the endpoints that servers are made of, nil if they are not known.
	Endpoints map[snapshots.ServicePort][]snapshots.Endpoint
	// CertificateEnds are the expiry times of the certificates in Secrets, and Issuers are their issuers.
	CertificateEnds map[snapshots.SecretName]time.Time
	Issuers         map[snapshots.SecretName]string
	// Traffic is the traffic of the backends that have some.
	Traffic map[string]observe.Traffic
	// Up is how many servers of each backend are up, for each instance that was asked.
	Up []rollout.ServersUp
}

// LiveInstance is what only a running pusher knows of an instance.
type LiveInstance struct {
	// HAProxy is the version of the worker, and Started is when it started.
	HAProxy string    `json:"haproxy,omitempty"`
	Started time.Time `json:"started,omitzero"`
	// ReloadsLeft is how many reloads the budget of the instance allows now, nil without a limit.
	ReloadsLeft *int `json:"reloadsLeft,omitempty"`
	// Failures is how many pushes in a row failed. The next one may begin at NotBefore.
	Failures  int       `json:"failures,omitempty"`
	NotBefore time.Time `json:"notBefore,omitzero"`
	// Repairs are the times of the last repairs of drift.
	Repairs []time.Time `json:"repairs,omitempty"`
	// Pushes are the last pushes of this pusher since it leads, the newest first.
	Pushes []Push `json:"pushes,omitempty"`
}

// Push is a push that has ended.
type Push struct {
	At       time.Time    `json:"at"`
	Snapshot snapshots.ID `json:"snapshot"`
	Why      string       `json:"why"`
	// Outcome is applied, refused, faulty, trouble or not begun. Class is nothing, runtime or reload, and Because is
	// the line that decided the class.
	Outcome rollout.Outcome `json:"outcome"`
	Class   string          `json:"class,omitempty"`
	Because string          `json:"because,omitempty"`
	// Took is the duration in seconds.
	Took  float64 `json:"took"`
	Error string  `json:"error,omitempty"`
}

// keptPushes is how many pushes of each instance are kept.
const keptPushes = 10

// watchPace is the least time between two copies of what the pusher knows.
const watchPace = 200 * time.Millisecond

// Watcher copies what a running pusher knows into immutable values. The goroutine of the pusher calls it. It never
// waits.
type Watcher struct {
	to     *Latest
	pushes map[string][]Push
	made   time.Time

	endpoints map[snapshots.ServicePort][]snapshots.Endpoint // a copy
	copied    time.Time
}

// endpointsPace is the least time between two copies of the endpoints, as there may be many.
const endpointsPace = time.Second

// NewWatcher returns a watcher that puts its values into to.
func NewWatcher(to *Latest) *Watcher { return &Watcher{to: to, pushes: map[string][]Push{}} }

// Watch copies what the pusher knows after a step.
func (w *Watcher) Watch(v observe.View, s report.Status, facts []observe.TimedFact) {
	for _, t := range facts {
		if p, ok := t.Fact.(observe.Pushed); ok {
			made := Push{
				At: t.At.UTC().Truncate(time.Second), Snapshot: p.Snapshot, Why: p.Why, Outcome: p.Outcome, Class: string(p.Change.Class), Because: p.Change.Because(),
				Took: p.Took.Seconds(), Error: report.FirstLine(p.Error, report.LongestMessage),
			}
			list := append([]Push{made}, w.pushes[p.Instance]...) // a new slice: a published value has the old one
			w.pushes[p.Instance] = list[:min(len(list), keptPushes)]
		}
	}
	if v.Now.Sub(w.made) < watchPace && v.Now.After(w.made) {
		return // a later step publishes it: there is one at least once a second
	}
	w.made = v.Now
	if v.Now.Sub(w.copied) >= endpointsPace || v.Now.Before(w.copied) || w.endpoints == nil {
		w.endpoints, w.copied = maps.Clone(v.Endpoints), v.Now
	}
	live := &Live{Endpoints: w.endpoints, Traffic: v.Traffic, Up: v.Up, CertificateEnds: v.CertificateEnds, Issuers: v.Issuers, Waves: v.Waves, Soak: v.Soak, Gate: v.Gate, Budget: v.Budget, Instances: make(map[string]LiveInstance, len(v.Instances))}
	for _, i := range v.Instances {
		known := v.Rollout.Instances[i.Name]
		l := LiveInstance{
			HAProxy: i.Info.Version, Started: i.Started, Failures: known.Failures, NotBefore: known.NotBefore, Pushes: w.pushes[i.Name],
			Repairs: slices.Clone(v.Rollout.Repairs[i.Name].At),
		}
		if left, ok := v.Budget.Instances[i.Name]; ok {
			l.ReloadsLeft = &left
		}
		live.Instances[i.Name] = l
	}
	maps.DeleteFunc(w.pushes, func(name string, _ []Push) bool {
		_, there := live.Instances[name]
		return !there
	})
	w.to.Set(Fleet{Status: s, Live: live, At: v.Now})
}

// Latest is the last value of a fleet. The writer and the readers never wait for each other.
type Latest struct {
	fleet   atomic.Pointer[Fleet]
	changed chan struct{}
}

// NewLatest returns a Latest for a fleet about which nothing is known yet.
func NewLatest() *Latest {
	l := &Latest{changed: make(chan struct{}, 1)}
	l.fleet.Store(&Fleet{Trouble: "nothing is known of the fleet yet"})
	return l
}

// Set replaces the value, which must not change from then on.
func (l *Latest) Set(f Fleet) {
	l.fleet.Store(&f)
	select {
	case l.changed <- struct{}{}:
	default:
	}
}

// Fleet returns the newest fleet that was read.
func (l *Latest) Fleet() Fleet { return *l.fleet.Load() }

// Follow calls changed after each change, until ctx is done. One goroutine calls it.
func (l *Latest) Follow(ctx context.Context, changed func()) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-l.changed:
			changed()
		}
	}
}

// ServerState is the state of a server in a worker.
type ServerState struct {
	Instance, Address string
	Port              int
	Up                bool // it gets requests
}

// seen is the state of a server: On is how many instances have it, and Up on how many of them it gets requests.
type seen struct{ Up, On int }

// healthAge is how long the answers of instances about a backend are kept. healthTimeout bounds a question.
// healthPace is the least time between the beginnings of two questions.
const (
	healthAge     = 10 * time.Second
	healthTimeout = 5 * time.Second
	healthPace    = 250 * time.Millisecond
)

// newHealth returns the inquiries that ask instances for the servers of a backend.
func newHealth(ctx context.Context, ask func(context.Context, string) []ServerState, changed func()) *inquiries[string, map[netip.AddrPort]seen] {
	if ask == nil {
		return nil
	}
	return newInquiries(ctx, changed, healthAge, healthTimeout, healthPace, func(ctx context.Context, backend string) map[netip.AddrPort]seen {
		states := map[netip.AddrPort]seen{}
		for _, s := range ask(ctx, backend) {
			ip, err := netip.ParseAddr(s.Address)
			if err != nil || s.Port < 1 || s.Port > 65535 {
				continue // a slot without a server
			}
			at := netip.AddrPortFrom(ip.Unmap(), uint16(s.Port)) //nolint:gosec // checked above
			states[at] = seen{states[at].Up + boolTo(s.Up), states[at].On + 1}
		}
		return states
	})
}

// inquiries ask others, such as instances. They ask one question at a time for all viewers, and keep answers for a
// while.
type inquiries[K comparable, V any] struct {
	ask                func(ctx context.Context, key K) V
	ctx                context.Context //nolint:containedctx // of the server: a question goes on when its viewer has left
	changed            func()
	age, timeout, pace time.Duration
	turn               chan struct{} // held during a question

	mu    sync.Mutex
	known *memory[K, *inquiry[V]]
}

// inquiry is a question with its last answer.
type inquiry[V any] struct {
	answer V
	asked  time.Time     // when the answer came, zero for never
	asking chan struct{} // closed when the current question ends; nil if there is none
}

// keptAnswers is how many answers are kept.
const keptAnswers = 64

func newInquiries[K comparable, V any](ctx context.Context, changed func(), age, timeout, pace time.Duration, ask func(context.Context, K) V) *inquiries[K, V] {
	return &inquiries[K, V]{ask: ask, ctx: ctx, changed: changed, age: age, timeout: timeout, pace: pace, turn: make(chan struct{}, 1), known: newMemory[K, *inquiry[V]](keptAnswers)}
}

// of returns the last answer, and whether there is one. Before the first answer, it waits for [firstAnswer] at most.
func (q *inquiries[K, V]) of(ctx context.Context, key K) (answer V, known bool) {
	if q == nil {
		return answer, false
	}
	q.mu.Lock()
	i, ok := q.known.get(key)
	if !ok {
		i = &inquiry[V]{}
		q.known.put(key, i)
	}
	if i.asking == nil && time.Since(i.asked) > q.age {
		i.asking = make(chan struct{})
		go q.once(i, i.asking, key)
	}
	asking, first := i.asking, i.asked.IsZero()
	q.mu.Unlock()
	if first && ctx.Value(nowait{}) == nil {
		select {
		case <-asking:
		case <-ctx.Done():
		case <-time.After(firstAnswer):
		}
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	return i.answer, !i.asked.IsZero()
}

// once asks a question, and keeps the answer.
func (q *inquiries[K, V]) once(i *inquiry[V], done chan struct{}, key K) {
	var answer V
	select {
	case q.turn <- struct{}{}:
		began := time.Now()
		ctx, cancel := context.WithTimeout(q.ctx, q.timeout)
		answer = q.ask(ctx, key)
		cancel()
		time.AfterFunc(time.Until(began.Add(q.pace)), func() { <-q.turn })
	case <-q.ctx.Done():
	}
	q.mu.Lock()
	i.answer, i.asked, i.asking = answer, time.Now(), nil
	close(done)
	q.mu.Unlock()
	q.changed()
}
