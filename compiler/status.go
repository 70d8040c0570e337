package compiler

import (
	"errors"
	"fmt"
	"sync"

	"github.com/hapsnap/hapsnap/snapshots"
)

// Status says how [Run] is getting on. The zero Status is that of the start. It
// may be used by several goroutines.
type Status struct {
	mu         sync.Mutex
	started    bool
	compiles   bool // something was compiled
	follows    bool // another process publishes
	compileErr error
	publishErr error
	head       snapshots.ID
}

// Ready returns why the store is not known to hold what the files say, or nil.
// While another process leads, what it publishes is not our business: then one
// that has compiled is ready to take over.
func (s *Status) Ready() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	var shrunk *ShrinkError
	switch {
	case s.compileErr != nil:
		return fmt.Errorf("compile: %w", s.compileErr)
	case s.follows && s.compiles:
		return nil
	case errors.As(s.publishErr, &shrunk):
		return fmt.Errorf("held: %w; %s", shrunk, shrunk.Approval())
	case s.publishErr != nil:
		return fmt.Errorf("publish, trying again: %w", s.publishErr)
	case !s.started:
		return errors.New("nothing published yet")
	}
	return nil
}

// Head returns the snapshot that was last published, or found to be the head.
func (s *Status) Head() snapshots.ID {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.head
}

func (s *Status) compiled(err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.compileErr = err
	s.compiles = s.compiles || err == nil
}

// Leads reports whether this process is the one that publishes.
func (s *Status) Leads() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return !s.follows
}

func (s *Status) leads(leading bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.follows = !leading
}

func (s *Status) published(id snapshots.ID, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.publishErr = err
	if err == nil {
		s.started, s.head = true, id
	}
}
