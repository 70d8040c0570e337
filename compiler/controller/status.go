package controller

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/hapsnap/hapsnap/compiler"
	"github.com/hapsnap/hapsnap/compiler/diag"
	"github.com/hapsnap/hapsnap/compiler/gateway"
	"github.com/hapsnap/hapsnap/compiler/ingress"
	"github.com/hapsnap/hapsnap/internal/printable"
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
	slow       error // the compile that is under way takes long; nil if it does not
	publishErr error
	head       HeadReport
	found      []Finding
	warnings   int
	ingresses  *ingress.Census // nil: nothing was compiled yet
	gateway    []gateway.ObjectStatus
	success    time.Time
	config     *ConfigReport
	templates  *ConfigReport
	conditions []metav1.Condition
	webhook    *CredentialsReport
	other      *RivalReport
	election   election   // nil where nobody is elected
	ask        *AskReport // what the store was asked and has not answered, or nil
}

// election says who leads, if this process does not.
type election interface {
	Holder() string // as last seen
	Trouble() error // why nobody knows, or nil
}

func (s *Status) elects(e election) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.election = e
}

// leader says who publishes in place of this process.
func (s *Status) leader() string {
	if s.election == nil {
		return "another compiler publishes"
	}
	if err := s.election.Trouble(); err != nil {
		return "it is not known who leads: " + err.Error()
	}
	if holder := s.election.Holder(); holder != "" {
		return "another compiler leads: " + holder
	}
	return "no compiler leads"
}

// Ready returns why the store may not hold what the objects say, or nil. While another process leads, this process does
// not check what that one publishes: it is ready to take over as soon as it has compiled.
func (s *Status) Ready() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.ready()
}

func (s *Status) ready() error {
	held := s.shrunk()
	switch {
	case s.compiling() != nil:
		return fmt.Errorf("compile: %w", s.compiling())
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
	s.judge(time.Now())
	c := &CompilerReport{
		Leads: !s.follows, Reason: text(s.ready()), LastSuccess: s.success, Warnings: s.warnings, CompileError: text(s.compiling()),
	}
	c.Ready = c.Reason == ""
	if s.follows {
		c.Leader = s.leader()
	}
	if held := s.shrunk(); held != nil {
		c.Held = &HeldReport{Lost: held.Lost, Since: held.Head, Digest: held.Digest, Approval: held.Approval()}
	} else if !s.follows {
		c.PublishError = text(s.publishErr)
	}
	c.Refused, c.RefusedTemplates, c.Ingresses, c.Gateway = s.config, s.templates, s.ingresses, s.gateway
	c.Conditions, c.Webhook, c.Rival = slices.Clone(s.conditions), s.webhook, s.other
	if s.ask != nil && time.Since(s.ask.Since) >= silence {
		c.Unanswered = s.ask
	}
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

// The reasons of the conditions of a compiler.
const (
	reasonPublished     = "Published"
	reasonFollows       = "AnotherPublishes"
	reasonNothing       = "NothingPublished"
	reasonCompileFailed = "CompileFailed"
	reasonRival         = "AnotherCompiler"
	reasonHeld          = "LossHeld"
	reasonPublishFailed = "PublishFailed"
	reasonRefused       = "ConfigurationRefused"
	reasonTemplates     = "TemplatesRefused"
	reasonLeftOut       = "ObjectsLeftOut"
)

// judge sets the conditions, in the form of kstatus: Ready while the store holds what the objects
// say, Progressing until the first snapshot is there, and Degraded while a person must act for
// anything to be published. Objects that are left out harm only themselves. Those whose status
// is as before keep the time of their last transition.
func (s *Status) judge(now time.Time) {
	reason, message := reasonPublished, s.head.Snapshot.String()+" is published"
	held, failed := s.shrunk(), true
	switch {
	case s.compiling() != nil:
		reason, message = reasonCompileFailed, s.compiling().Error()
	case s.other != nil && !s.follows:
		reason, message = reasonRival, s.other.String()
	case held != nil:
		reason, message = reasonHeld, held.Error()
	case s.publishErr != nil && !s.follows:
		reason, message = reasonPublishFailed, s.publishErr.Error()
	case s.config != nil:
		reason, message = reasonRefused, "the configuration is refused, and the one before it is used"
	case s.templates != nil:
		reason, message = reasonTemplates, "the templates are refused, and those before them are used"
	default:
		failed = false
		switch {
		case s.follows:
			reason, message = reasonFollows, s.leader()
		case !s.started:
			reason, message = reasonNothing, "nothing is published yet"
		case len(s.found) > 0:
			reason, message = reasonLeftOut, fmt.Sprintf("%s; %d objects or parts of them are left out", message, len(s.found))
		}
	}
	message, _, _ = strings.Cut(message, "\n")
	set := func(kind string, so bool) {
		status := metav1.ConditionFalse
		if so {
			status = metav1.ConditionTrue
		}
		meta.SetStatusCondition(&s.conditions, metav1.Condition{
			Type: kind, Status: status, Reason: reason, Message: printable.Shortened(message, longestCondition), LastTransitionTime: metav1.NewTime(now.UTC().Truncate(time.Second)),
			ObservedGeneration: int64(s.head.Snapshot.Revision), //nolint:gosec // revisions are counted from 1
		})
	}
	set("Ready", s.ready() == nil)
	set("Progressing", !failed && s.ready() != nil)
	set("Degraded", failed)
}

// longestCondition is how many bytes a message of a condition has.
const longestCondition = 300

func text(err error) string {
	if err == nil {
		return ""
	}
	return err.Error()
}

// compiled records a compile. If the objects could not be read, the earlier findings on them stay.
func (s *Status) compiled(r compiler.Result, err error, now time.Time) {
	found := r.Diagnostics
	s.mu.Lock()
	defer s.mu.Unlock()
	defer func() { s.judge(now) }()
	s.compileErr = err
	s.compiles = s.compiles || err == nil
	if err == nil || len(found) > 0 {
		s.found, s.warnings = findings(s.found, found, now), warnings(found)
	}
	if err == nil {
		s.ingresses, s.gateway = &r.Ingresses, r.Verdicts.Statuses()
	}
}

// configured notes what is wrong with the configuration as it is written.
func (s *Status) configured(found []diag.Diagnostic, err error, now time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.config = s.config.with(found, err, now)
	s.judge(now)
}

// templated notes what is wrong with the templates as they are written.
func (s *Status) templated(found []diag.Diagnostic, err error, now time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.templates = s.templates.with(found, err, now)
	s.judge(now)
}

// with returns the report with what is wrong now, nil if nothing is. After an error, what was found stays.
func (r *ConfigReport) with(found []diag.Diagnostic, err error, now time.Time) *ConfigReport {
	if len(found) == 0 && err == nil {
		return nil
	}
	out := &ConfigReport{Error: text(err)}
	if r != nil {
		out.Found = r.Found
	}
	if err == nil {
		out.Found = findings(out.Found, found, now)
	}
	return out
}

// Webhook records why the certificate of the webhook cannot be made, renewed or used; nil if it can. Publishing does not
// wait for it.
func (s *Status) Webhook(err error, now time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case err == nil:
		s.webhook = nil
	case s.webhook == nil:
		s.webhook = &CredentialsReport{Error: err.Error(), Since: now}
	default:
		s.webhook = &CredentialsReport{Error: err.Error(), Since: s.webhook.Since}
	}
}

// rival records another compiler that publishes to the same store; nil if there is none.
func (s *Status) rival(r *RivalReport, now time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.other = r
	s.judge(now)
}

// asked records what the store was asked to do; nil once it has answered.
func (s *Status) asked(a *AskReport) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.ask = a
}

// compiling returns what is wrong with the compile that is under way or, if nothing is, with the last one.
func (s *Status) compiling() error {
	if s.slow != nil {
		return s.slow
	}
	return s.compileErr
}

// takesLong records that the compile that is under way takes long; nil once it has ended.
func (s *Status) takesLong(err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.slow = err
}

// waiting records why there is no compile yet.
func (s *Status) waiting(err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.compileErr = err
	s.judge(time.Now())
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
	s.judge(time.Now())
}

// published records an attempt to publish. Head is the newest snapshot after it, as far as that is known.
func (s *Status) published(head snapshots.Snapshot, err error, now time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	defer func() { s.judge(now) }()
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
