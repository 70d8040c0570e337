package compiler

import (
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/hapsnap/hapsnap/compiler/diag"
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
	head       HeadReport
	found      []Finding
	warnings   int
	success    time.Time
	config     *ConfigReport
}

// Ready returns why the store is not known to hold what the objects say, or nil.
// While another process leads, what it publishes is not our business: then one
// that has compiled is ready to take over.
func (s *Status) Ready() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.ready()
}

func (s *Status) ready() error {
	held := s.shrunk()
	switch {
	case s.compileErr != nil:
		return fmt.Errorf("compile: %w", s.compileErr)
	case s.follows && s.compiles:
		return nil
	case held != nil:
		return fmt.Errorf("held: %w; %s", held, held.Approval())
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
	return s.head.Snapshot
}

// Report returns all that is known.
func (s *Status) Report() Report {
	s.mu.Lock()
	defer s.mu.Unlock()
	c := &CompilerReport{
		Leads: !s.follows, Reason: text(s.ready()), LastSuccess: s.success, Warnings: s.warnings, CompileError: text(s.compileErr),
	}
	c.Ready = c.Reason == ""
	if held := s.shrunk(); held != nil {
		c.Held = &HeldReport{Lost: held.Lost, Since: held.Head, Digest: held.Digest, Approval: held.Approval()}
	} else if !s.follows {
		c.PublishError = text(s.publishErr)
	}
	c.Refused = s.config
	return Report{Head: s.head, Found: append([]Finding{}, s.found...), Compiler: c}
}

// shrunk returns why a draft waits for approval, or nil. What waited when another
// process took over is its business now.
func (s *Status) shrunk() *ShrinkError {
	if s.follows {
		return nil
	}
	held, _ := errors.AsType[*ShrinkError](s.publishErr)
	return held
}

func text(err error) string {
	if err == nil {
		return ""
	}
	return err.Error()
}

// compiled takes note of a compile. Where not even the objects could be read, what
// was found on them before still stands.
func (s *Status) compiled(found []diag.Diagnostic, err error, now time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.compileErr = err
	s.compiles = s.compiles || err == nil
	if err == nil || len(found) > 0 {
		s.found, s.warnings = findings(s.found, found, now), warnings(found)
	}
}

// configured takes note of what is wrong with the configuration as it is written.
func (s *Status) configured(found []diag.Diagnostic, err error, now time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(found) == 0 && err == nil {
		s.config = nil
		return
	}
	r := &ConfigReport{Error: text(err)}
	if s.config != nil {
		r.Found = s.config.Found
	}
	if err == nil {
		r.Found = findings(r.Found, found, now)
	}
	s.config = r
}

// waiting takes note of what keeps from compiling.
func (s *Status) waiting(err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.compileErr = err
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

// published takes note of a try to publish, after which head is the newest as far
// as that is known.
func (s *Status) published(head snapshots.Snapshot, err error, now time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.publishErr = err
	if s.head.Snapshot != head.ID() {
		s.head = headReport(head)
	}
	if err == nil {
		s.started = true
	}
	if err == nil && s.compileErr == nil {
		s.success = now
	}
}
