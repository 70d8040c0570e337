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

// Live is what only a running pusher knows, besides its status.
type Live struct {
	// Waves are those that a rollout takes, Soak how long each is watched, and Gate what it compares.
	Waves []rollout.WaveSize
	Soak  time.Duration
	Gate  *rollout.Figures
	// Budget is what is left of that of reloads.
	Budget rollout.Left
	// Instances are those of the fleet, by name.
	Instances map[string]LiveInstance
	// Endpoints are those that servers are made of, nil where they are not known.
	Endpoints map[snapshots.ServicePort][]snapshots.Endpoint
	// CertificateEnds are when the certificates in Secrets expire, and Issuers who issued them.
	CertificateEnds map[snapshots.SecretName]time.Time
	Issuers         map[snapshots.SecretName]string
	// Traffic is what backends serve, of those that do.
	Traffic map[string]observe.Traffic
	// Up says how many servers of each backend are up, on each instance that was asked.
	Up []rollout.ServersUp
}

// LiveInstance is what only a running pusher knows of an instance.
type LiveInstance struct {
	// HAProxy is the version of its worker, which began at a time.
	HAProxy string    `json:"haproxy,omitempty"`
	Started time.Time `json:"started,omitzero"`
	// ReloadsLeft is how many reloads its budget allows at once, nil where there is no limit.
	ReloadsLeft *int `json:"reloadsLeft,omitempty"`
	// Failures counts the pushes in a row that did not come through; the next may begin at NotBefore.
	Failures  int       `json:"failures,omitempty"`
	NotBefore time.Time `json:"notBefore,omitzero"`
	// Repairs are the last times that somebody else's change of what it runs was undone.
	Repairs []time.Time `json:"repairs,omitempty"`
	// Pushes are the last ones since this pusher leads, the newest first.
	Pushes []Push `json:"pushes,omitempty"`
}

// Push is a push that has ended.
type Push struct {
	At       time.Time    `json:"at"`
	Snapshot snapshots.ID `json:"snapshot"`
	Why      string       `json:"why"`
	// Outcome is applied, refused, faulty, trouble or not begun, and Class what it took: nothing, runtime
	// or reload, because of a line.
	Outcome rollout.Outcome `json:"outcome"`
	Class   string          `json:"class,omitempty"`
	Because string          `json:"because,omitempty"`
	// Took is how long it took, in seconds.
	Took  float64 `json:"took"`
	Error string  `json:"error,omitempty"`
}

// keptPushes is how many are kept of each instance.
const keptPushes = 10

// watchPace is how often what a pusher knows is copied for those who look, at most.
const watchPace = 200 * time.Millisecond

// Watcher makes values of what a running pusher knows, which nobody changes any more. One goroutine
// calls it, that of the pusher, and it waits for nobody.
type Watcher struct {
	to     *Latest
	pushes map[string][]Push
	made   time.Time

	endpoints map[snapshots.ServicePort][]snapshots.Endpoint // a copy
	copied    time.Time
}

// endpointsPace is how often endpoints are copied, at most: there may be many.
const endpointsPace = time.Second

// NewWatcher returns a watcher that leaves what it makes in to.
func NewWatcher(to *Latest) *Watcher { return &Watcher{to: to, pushes: map[string][]Push{}} }

// Watch takes what is known after a step.
func (w *Watcher) Watch(v observe.View, s report.Status, told []observe.Told) {
	for _, t := range told {
		if p, ok := t.Fact.(observe.Pushed); ok {
			made := Push{
				At: t.At.UTC().Truncate(time.Second), Snapshot: p.Snapshot, Why: p.Why, Outcome: p.Outcome, Class: string(p.Change.Class), Because: p.Change.Because(),
				Took: p.Took.Seconds(), Error: report.FirstLine(p.Error, report.LongestMessage),
			}
			list := append([]Push{made}, w.pushes[p.Instance]...) // another slice: the old one is somebody's by now
			w.pushes[p.Instance] = list[:min(len(list), keptPushes)]
		}
	}
	if v.Now.Sub(w.made) < watchPace && v.Now.After(w.made) {
		return // there is a step at least once a second
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

// Latest holds what was known of a fleet last, between who finds it out and who looks. Neither
// waits for the other.
type Latest struct {
	fleet   atomic.Pointer[Fleet]
	changed chan struct{}
}

// NewLatest returns one that knows nothing yet.
func NewLatest() *Latest {
	l := &Latest{changed: make(chan struct{}, 1)}
	l.fleet.Store(&Fleet{Trouble: "nothing is known of the fleet yet"})
	return l
}

// Set replaces what is known. Nobody changes the value from now on.
func (l *Latest) Set(f Fleet) {
	l.fleet.Store(&f)
	select {
	case l.changed <- struct{}{}:
	default:
	}
}

// Fleet returns what is known.
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

// ServerState is a server of a backend, as a worker has it now.
type ServerState struct {
	Instance, Address string
	Port              int
	Up                bool // it gets requests
}

// seen is on how many instances a server is, and gets requests.
type seen struct{ Up, On int }

// What instances said of a backend is asked for again after healthAge. They may take healthTimeout, and
// are left alone for healthPace between two questions.
const (
	healthAge     = 10 * time.Second
	healthTimeout = 5 * time.Second
	healthPace    = 250 * time.Millisecond
)

// newHealth returns what asks instances for the servers of backends that somebody asks about.
func newHealth(ctx context.Context, ask func(context.Context, string) []ServerState, changed func()) *inquiries[string, map[netip.AddrPort]seen] {
	if ask == nil {
		return nil
	}
	return newInquiries(ctx, changed, healthAge, healthTimeout, healthPace, func(ctx context.Context, backend string) map[netip.AddrPort]seen {
		states := map[netip.AddrPort]seen{}
		for _, s := range ask(ctx, backend) {
			ip, err := netip.ParseAddr(s.Address)
			if err != nil || s.Port < 1 || s.Port > 65535 {
				continue // a place that has no server
			}
			at := netip.AddrPortFrom(ip.Unmap(), uint16(s.Port)) //nolint:gosec // it was looked at
			states[at] = seen{states[at].Up + boolTo(s.Up), states[at].On + 1}
		}
		return states
	})
}

// inquiries are questions to others, who are asked one at a time, however many look. Answers are kept for a while.
type inquiries[K comparable, V any] struct {
	ask                func(ctx context.Context, key K) V
	ctx                context.Context //nolint:containedctx // of the server, for questions that outlive who asked
	changed            func()
	age, timeout, pace time.Duration
	turn               chan struct{} // held by who asks

	mu    sync.Mutex
	known *memory[K, *inquiry[V]]
}

// inquiry is a question, with the last answer.
type inquiry[V any] struct {
	answer V
	asked  time.Time     // when the answer came, zero for never
	asking chan struct{} // closed when the question ends that is under way, nil for none
}

// keptAnswers is how many are kept.
const keptAnswers = 64

func newInquiries[K comparable, V any](ctx context.Context, changed func(), age, timeout, pace time.Duration, ask func(context.Context, K) V) *inquiries[K, V] {
	return &inquiries[K, V]{ask: ask, ctx: ctx, changed: changed, age: age, timeout: timeout, pace: pace, turn: make(chan struct{}, 1), known: newMemory[K, *inquiry[V]](keptAnswers)}
}

// of returns the last answer, and whether there is one. Who asks first waits for a moment.
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

// once asks once.
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
