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
	"github.com/hapsnap/hapsnap/compiler/render"
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
	ingresses  *ingress.Census // nil: nothing was compiled yet
	gateway    []gateway.ObjectStatus
	success    time.Time
	config     *ConfigReport
	conditions []metav1.Condition
	webhook    *CredentialsReport
	other      *RivalReport
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
	s.judge(time.Now())
	c := &CompilerReport{
		Leads: !s.follows, Reason: text(s.ready()), LastSuccess: s.success, Warnings: s.warnings, CompileError: text(s.compileErr),
	}
	c.Ready = c.Reason == ""
	if held := s.shrunk(); held != nil {
		c.Held = &HeldReport{Lost: held.Lost, Since: held.Head, Digest: held.Digest, Approval: held.Approval()}
	} else if !s.follows {
		c.PublishError = text(s.publishErr)
	}
	c.Refused, c.Ingresses, c.Gateway = s.config, s.ingresses, s.gateway
	c.Conditions, c.Webhook, c.Rival = slices.Clone(s.conditions), s.webhook, s.other
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
	case s.compileErr != nil:
		reason, message = reasonCompileFailed, s.compileErr.Error()
	case s.other != nil && !s.follows:
		reason, message = reasonRival, s.other.String()
	case held != nil:
		reason, message = reasonHeld, held.Error()
	case s.publishErr != nil && !s.follows:
		reason, message = reasonPublishFailed, s.publishErr.Error()
	case s.config != nil:
		reason, message = reasonRefused, "the configuration is refused, and the one before it is used"
	default:
		failed = false
		switch {
		case s.follows:
			reason, message = reasonFollows, "another compiler publishes"
		case !s.started:
			reason, message = reasonNothing, "nothing is published yet"
		case len(s.found) > 0:
			reason, message = reasonLeftOut, fmt.Sprintf("%s; %d objects or parts of them are left out", message, len(s.found))
		}
	}
	set := func(kind string, so bool) {
		status := metav1.ConditionFalse
		if so {
			status = metav1.ConditionTrue
		}
		meta.SetStatusCondition(&s.conditions, metav1.Condition{
			Type: kind, Status: status, Reason: reason, Message: firstBytes(message, longestCondition), LastTransitionTime: metav1.NewTime(now.UTC().Truncate(time.Second)),
			ObservedGeneration: int64(s.head.Snapshot.Revision), //nolint:gosec // revisions are counted from 1
		})
	}
	set("Ready", s.ready() == nil)
	set("Progressing", !failed && s.ready() != nil)
	set("Degraded", failed)
}

// longestCondition is how many bytes a message of a condition has.
const longestCondition = 300

func firstBytes(text string, most int) string {
	text, _, _ = strings.Cut(text, "\n")
	if len(text) > most {
		text = strings.ToValidUTF8(text[:most], "") + "…"
	}
	return text
}

func text(err error) string {
	if err == nil {
		return ""
	}
	return err.Error()
}

// compiled takes note of a compile. Where not even the objects could be read, what
// was found on them before still stands.
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
	defer func() { s.judge(now) }()
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

// Webhook takes note of why the certificate of the webhook cannot be made, renewed or used, nil if it
// can. Nothing that is published waits for it.
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

// rival takes note of another compiler that publishes to the same store, nil if there is none.
func (s *Status) rival(r *RivalReport, now time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.other = r
	s.judge(now)
}

// waiting takes note of what keeps from compiling.
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

// published takes note of a try to publish, after which head is the newest as far
// as that is known.
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

// Report is what is known of a compiler and of its store, for people and for
// programs.
type Report struct {
	Head HeadReport `json:"head"`
	// Found are the faults of the inputs: what they are about was left out, or a
	// part of it. Those of templates and of the configuration, which name no object,
	// leave out nothing; nothing is compiled then.
	Found []Finding `json:"found"`
	// Withheld is how many faults the client may not see.
	Withheld int `json:"withheld,omitempty"`
	// Compiler is nil if no compiler was asked.
	Compiler *CompilerReport `json:"compiler,omitempty"`
}

// ForAnybody returns the report without what names objects, and with the number of faults.
func (r Report) ForAnybody() Report {
	out := Report{Head: r.Head, Found: []Finding{}, Withheld: len(r.Found)}
	out.Head.Subject = ""
	if c := r.Compiler; c != nil {
		out.Compiler = &CompilerReport{Ready: c.Ready, Leads: c.Leads, LastSuccess: c.LastSuccess, Warnings: c.Warnings, Conditions: slices.Clone(c.Conditions)}
		for i := range out.Compiler.Conditions {
			out.Compiler.Conditions[i].Message = ""
		}
		if !c.Ready {
			out.Compiler.Reason = "clients on the compiler's host are told why"
		}
	}
	return out
}

// HeadReport is the newest snapshot of a store, as far as the compiler knows.
type HeadReport struct {
	Snapshot     snapshots.ID `json:"snapshot,omitzero"`
	Time         time.Time    `json:"time,omitzero"` // of its validation
	Subject      string       `json:"subject,omitempty"`
	Backends     int          `json:"backends"` // that have servers
	Hosts        int          `json:"hosts"`
	Certificates int          `json:"certificates"` // of Secrets
}

// CompilerReport is what a compiler that runs says of itself.
type CompilerReport struct {
	Ready  bool   `json:"ready"`
	Reason string `json:"reason,omitempty"` // why it is not
	// Leads is set in the one compiler, of those of a store, that publishes.
	Leads bool `json:"leads"`
	// LastSuccess is when the store was last known to hold what the objects say.
	LastSuccess time.Time `json:"lastSuccess,omitzero"`
	// CompileError and PublishError are those of the last try.
	CompileError string `json:"compileError,omitempty"`
	PublishError string `json:"publishError,omitempty"`
	// Held is a draft that waits for approval, or nil.
	Held *HeldReport `json:"held,omitempty"`
	// Rival is another compiler that publishes to the same store, or nil.
	Rival *RivalReport `json:"rival,omitempty"`
	// Refused is set while the written configuration is not the one in use.
	Refused *ConfigReport `json:"refused,omitempty"`
	// Interrupted are the watches of the cluster that get no updates.
	Interrupted []WatchReport `json:"interrupted,omitempty"`
	Warnings    int           `json:"warnings"`
	// Webhook says why the certificate of the admission webhook, which the compiler that leads makes
	// and renews, cannot be made, renewed or used; nil if it can.
	Webhook *CredentialsReport `json:"webhook,omitempty"`
	// Conditions say the same in the form of kstatus: Ready, Progressing and Degraded.
	Conditions []metav1.Condition `json:"conditions,omitempty"`
	// Ingresses says how many are compiled and of which classes the others are, once
	// something was compiled.
	Ingresses *ingress.Census `json:"ingresses,omitempty"`
	// Gateway is what the status of objects of the Gateway API is to say, by what was compiled. Nothing
	// writes it into a cluster.
	Gateway []gateway.ObjectStatus `json:"gateway,omitempty"`
}

// CredentialsReport is what is wrong with credentials that the compiler makes.
type CredentialsReport struct {
	Error string    `json:"error"`
	Since time.Time `json:"since"`
}

// WatchReport is a list of objects that is held as it was known.
type WatchReport struct {
	Objects string    `json:"objects"`
	Error   string    `json:"error"`
	Since   time.Time `json:"since"`
}

// ConfigReport says why a configuration is not used: what is wrong with it, or that
// it cannot be read.
type ConfigReport struct {
	Error string    `json:"error,omitempty"`
	Found []Finding `json:"found,omitempty"`
}

// HeldReport is a draft that waits for approval.
type HeldReport struct {
	Lost     string           `json:"lost"`
	Since    snapshots.ID     `json:"since"` // what it is compared with
	Digest   snapshots.Digest `json:"digest"`
	Approval string           `json:"approval"` // how to approve it
}

// Finding is one fault of the inputs. Its position is as in [diag.Position].
type Finding struct {
	Kind      string    `json:"kind,omitempty"`
	Namespace string    `json:"namespace,omitempty"`
	Name      string    `json:"name,omitempty"`
	File      string    `json:"file,omitempty"`
	Line      int       `json:"line,omitempty"`
	Column    int       `json:"column,omitempty"`
	Field     string    `json:"field,omitempty"`
	Reason    string    `json:"reason"`
	Hint      string    `json:"hint,omitempty"`
	Since     time.Time `json:"since,omitzero"` // as far as this compiler knows
}

// Diagnostic returns the finding as a diagnostic.
func (f Finding) Diagnostic() diag.Diagnostic {
	return diag.Diagnostic{
		Severity: diag.Error, Object: diag.Object{Kind: f.Kind, Namespace: f.Namespace, Name: f.Name},
		Position: diag.Position{File: f.File, Line: f.Line, Column: f.Column, Field: f.Field},
		Message:  f.Reason, Hint: f.Hint,
	}
}

// StoredReport is what the newest snapshot of a store says by itself; the zero
// Snapshot is that of an empty store. It lists what was left out when it was
// published.
func StoredReport(head snapshots.Snapshot) Report {
	r := Report{Head: headReport(head), Found: []Finding{}}
	for _, q := range head.Manifest.Spec.Quarantined {
		r.Found = append(r.Found, Finding{Kind: q.Kind, Namespace: q.Namespace, Name: q.Name, Reason: q.Reason})
	}
	return r
}

// CompiledReport is what a compile says by itself, that is not published. err is that of the compile.
func CompiledReport(r compiler.Result, err error) Report {
	ingresses := r.Ingresses
	return Report{Found: findings(nil, r.Diagnostics, time.Time{}), Compiler: &CompilerReport{
		Ready: err == nil, Reason: text(err), CompileError: text(err), Leads: true, Warnings: warnings(r.Diagnostics),
		Ingresses: &ingresses, Gateway: r.Verdicts.Statuses(),
	}}
}

func headReport(s snapshots.Snapshot) HeadReport {
	size := sizeOf(s.Files)
	h := HeadReport{
		Snapshot: s.ID(), Time: s.Manifest.Provenance.Time, Subject: s.Manifest.Spec.Subject,
		Backends: size.backends, Hosts: size.hosts,
	}
	for _, c := range s.Manifest.Spec.Certificates {
		if c.File != render.Fallback {
			h.Certificates++
		}
	}
	return h
}

// findings returns the errors among diagnostics. Those that were there before are
// as old as they were then, also if they stand at another place by now.
func findings(before []Finding, ds []diag.Diagnostic, now time.Time) []Finding {
	type fault struct {
		object diag.Object
		reason string
	}
	since := map[fault]time.Time{}
	for _, f := range before {
		since[fault{f.Diagnostic().Object, f.Reason}] = f.Since
	}
	out := []Finding{}
	for _, d := range ds {
		if d.Severity != diag.Error {
			continue
		}
		at, known := since[fault{d.Object, d.Message}]
		if !known {
			at = now
		}
		out = append(out, Finding{
			Kind: d.Object.Kind, Namespace: d.Object.Namespace, Name: d.Object.Name,
			File: d.Position.File, Line: d.Position.Line, Column: d.Position.Column, Field: d.Position.Field,
			Reason: d.Message, Hint: d.Hint, Since: at,
		})
	}
	return out
}

// warnings counts those among diagnostics.
func warnings(ds []diag.Diagnostic) int {
	n := 0
	for _, d := range ds {
		if d.Severity == diag.Warning {
			n++
		}
	}
	return n
}
