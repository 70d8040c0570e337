package agent

import (
	"context"
	"sync"
)

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
