package agent

import (
	"container/list"
	"context"
	"io"
	"sync"
	"time"

	"github.com/corazawaf/coraza/v3"
	"golang.org/x/sync/singleflight"

	"github.com/hapsnap/hapsnap/internal/process"
	"github.com/hapsnap/hapsnap/waf/policy"
)

// prepared is a policy with its engine, or why it has none.
type prepared struct {
	text   string
	policy policy.Policy
	digest string
	engine coraza.WAF
	err    error

	users   int // requests that use the engine
	dropped bool
}

// policies are those that requests named lately, prepared, at most so many.
type policies struct {
	most    int
	metrics *metrics
	flight  singleflight.Group
	turn    chan struct{} // of the one policy that is being prepared: inspections go on beside it
	lock    sync.Mutex
	byText  map[string]*list.Element
	recent  list.List // of *prepared, the last used first
}

func newPolicies(most int, m *metrics) *policies {
	return &policies{most: most, metrics: m, turn: make(chan struct{}, 1), byText: map[string]*list.Element{}}
}

// use returns a policy by its text, prepared once however many ask at a time, and a function to call when it is used
// no more. It returns nil when ctx is done before that. Preparing goes on then, for those who come later.
func (p *policies) use(ctx context.Context, text []byte) (*prepared, func()) {
	for ctx.Err() == nil {
		if held := p.held(text); held != nil {
			return held, func() { p.done(held) }
		}
		key := string(text)
		over := p.flight.DoChan(key, func() (any, error) { // the result is among those that are held
			select {
			case p.turn <- struct{}{}:
			case <-ctx.Done():
				return nil, nil
			}
			defer func() { <-p.turn }()
			if held := p.held([]byte(key)); held != nil {
				p.done(held)
				return nil, nil
			}
			p.hold(prepare(key, p.metrics))
			return nil, nil
		})
		select {
		case <-over:
		case <-ctx.Done():
		}
	}
	return nil, nil
}

func prepare(text string, m *metrics) *prepared {
	start := time.Now()
	made := &prepared{text: text, digest: noPolicy}
	made.policy, made.err = policy.Parse(text)
	if made.err == nil {
		made.digest = made.policy.Digest()
		made.err = process.Caught(func() (err error) {
			made.engine, err = newEngine(made.policy)
			return err
		})
	}
	m.prepared.Observe(time.Since(start).Seconds())
	return made
}

func (p *policies) held(text []byte) *prepared {
	p.lock.Lock()
	defer p.lock.Unlock()
	element := p.byText[string(text)]
	if element == nil {
		return nil
	}
	p.recent.MoveToFront(element)
	held := element.Value.(*prepared)
	held.users++
	return held
}

// hold adds a policy, and drops the one that was used least lately when there are too many.
func (p *policies) hold(made *prepared) {
	p.lock.Lock()
	defer p.lock.Unlock()
	p.byText[made.text] = p.recent.PushFront(made)
	for p.recent.Len() > p.most {
		last := p.recent.Remove(p.recent.Back()).(*prepared)
		delete(p.byText, last.text)
		last.dropped = true
		last.close()
		p.metrics.forget(last.digest)
	}
	p.metrics.policies.Set(float64(p.recent.Len()))
}

func (p *policies) done(used *prepared) {
	p.lock.Lock()
	defer p.lock.Unlock()
	used.users--
	used.close()
}

// close frees what the engine shares with others, once nobody uses it.
func (p *prepared) close() {
	if closer, ok := p.engine.(io.Closer); ok && p.dropped && p.users == 0 {
		_ = closer.Close() // releases memory, and cannot fail
	}
}
