package ui

import (
	"context"
	"net/netip"
	"sync"
	"time"
)

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
