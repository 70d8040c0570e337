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

// policyKey names a policy, as a request does: its text, and the version of the rules that it is prepared with.
type policyKey struct{ rules, text string }

// prepared is a policy with its engine, or why it has none.
type prepared struct {
	key    policyKey
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
	byKey   map[policyKey]*list.Element
	recent  list.List // of *prepared, the last used first
}

func newPolicies(most int, m *metrics) *policies {
	return &policies{most: most, metrics: m, turn: make(chan struct{}, 1), byKey: map[policyKey]*list.Element{}}
}

// use returns a policy by its text, with some rules, prepared once however many ask at a time, and a function to call
// when it is used no more. It returns nil when ctx is done before that. Preparing goes on then, for those who come later.
func (p *policies) use(ctx context.Context, rules *ruleSet, text []byte) (*prepared, func()) {
	for ctx.Err() == nil {
		if held := p.held(rules.version, text); held != nil {
			return held, func() { p.done(held) }
		}
		key := string(text)
		over := p.flight.DoChan(rules.version+" "+key, func() (any, error) { // the result is among those that are held
			select {
			case p.turn <- struct{}{}:
			case <-ctx.Done():
				return nil, nil
			}
			defer func() { <-p.turn }()
			if held := p.held(rules.version, []byte(key)); held != nil {
				p.done(held)
				return nil, nil
			}
			p.hold(prepare(rules, key, p.metrics))
			return nil, nil
		})
		select {
		case <-over:
		case <-ctx.Done():
		}
	}
	return nil, nil
}

func prepare(rules *ruleSet, text string, m *metrics) *prepared {
	start := time.Now()
	made := &prepared{key: policyKey{rules.version, text}, digest: noPolicy}
	made.policy, made.err = policy.Parse(text)
	if made.err == nil {
		made.digest = made.policy.Digest()
		made.err = process.Caught(func() (err error) {
			made.engine, err = rules.engine(made.policy)
			return err
		})
	}
	m.prepared.Observe(time.Since(start).Seconds())
	return made
}

func (p *policies) held(version string, text []byte) *prepared {
	p.lock.Lock()
	defer p.lock.Unlock()
	element := p.byKey[policyKey{version, string(text)}]
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
	p.byKey[made.key] = p.recent.PushFront(made)
	for p.recent.Len() > p.most {
		last := p.recent.Remove(p.recent.Back()).(*prepared)
		delete(p.byKey, last.key)
		last.dropped = true
		last.close()
		if !p.holds(last.digest) {
			p.metrics.forget(last.digest)
		}
	}
	p.metrics.policies.Set(float64(p.recent.Len()))
}

// holds reports whether a policy is held, with whichever rules.
func (p *policies) holds(digest string) bool {
	for e := p.recent.Front(); e != nil; e = e.Next() {
		if e.Value.(*prepared).digest == digest {
			return true
		}
	}
	return false
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

// shares bound how many requests of a route are inspected at a time, so that requests which take long hold up their own
// route and no other.
type shares struct {
	most int
	lock sync.Mutex
	// of are those of the routes that have requests.
	of map[string]*share
}

// share is that of a route.
type share struct {
	slots chan struct{}
	users int // requests that wait or are inspected
}

func newShares(most int) *shares { return &shares{most: most, of: map[string]*share{}} }

// enter waits for the turn of a request, and returns a function to call at its end. It reports false when ctx is done
// before that.
func (s *shares) enter(ctx context.Context, route string) (leave func(), ok bool) {
	s.lock.Lock()
	of := s.of[route]
	if of == nil {
		of = &share{slots: make(chan struct{}, s.most)}
		s.of[route] = of
	}
	of.users++
	s.lock.Unlock()
	select {
	case of.slots <- struct{}{}:
		return func() { <-of.slots; s.leave(route, of) }, true
	case <-ctx.Done():
		s.leave(route, of)
		return nil, false
	}
}

func (s *shares) leave(route string, of *share) {
	s.lock.Lock()
	defer s.lock.Unlock()
	if of.users--; of.users == 0 {
		delete(s.of, route)
	}
}
