// Package controller keeps a store up to date with the objects, templates and configuration that a compiler reads.
// [Run] is the loop: it waits for changes, compiles, and publishes the result. It also reports its state ([Status]), and
// holds back a draft that lost too much ([ShrinkError]).
//
// Package compiler decides what a compile is made of, and what it leaves out.
//
// # Decisions
//
// If the newest snapshot is corrupt, the next one follows it, in all stores. The guard against mass losses then compares
// with the newest snapshot that can be read (publish.go). In git this holds for a branch whose tip has the tag of a
// snapshot. Any other commit on the branch was made by a person, who decides.
//
// A changed configuration is on trial until it has compiled, and so are changed templates. First the parser and HAProxy
// check a configuration alone. Errors that it only causes together with the templates show in the compile; then, too, the
// compiler goes back to the old configuration, or to the old templates. It reads a changed file after a quiet moment, since
// half of a file can look like a whole one. It stays ready meanwhile: what is used works.
package controller

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.opentelemetry.io/otel/trace"
	"go.opentelemetry.io/otel/trace/noop"

	"github.com/hapsnap/hapsnap/compiler"
	"github.com/hapsnap/hapsnap/compiler/config"
	"github.com/hapsnap/hapsnap/compiler/diag"
	"github.com/hapsnap/hapsnap/compiler/ingress"
	"github.com/hapsnap/hapsnap/compiler/inputs"
	"github.com/hapsnap/hapsnap/compiler/validate"
	"github.com/hapsnap/hapsnap/snapshots"
)

// Options are those of [Run]. All fields are needed, except Tracers, Leader, Configuration, Override, Announcer, Judge,
// Interval and MaxWait.
type Options struct {
	Source  compiler.Source
	Store   store
	Checker *validate.Checker
	Log     *slog.Logger
	Metrics prometheus.Registerer
	Tracers trace.TracerProvider // nil: none
	Status  *Status
	// Leader says when to publish; nil is always.
	Leader leader
	// Configuration replaces that of the Source when it changes and has no errors; nil never does. Override is applied
	// to it.
	Configuration Configuration
	Override      func(*config.Config)
	// Announcer writes Events and statuses of objects; nil writes none.
	Announcer announcer
	// Judge gets what was compiled; nil is allowed.
	Judge *compiler.Judge
	// SeesDeletions is set if an object is gone from the Source only when it was deleted, as in a cluster. Files may be
	// gone because a volume is mounted in part.
	SeesDeletions bool
	// Interval is how long there must be no change before changes that follow a compile closely are compiled. It is also how
	// long they wait at most, or a multiple of that while changes keep coming, up to MaxWait. Zero means the default.
	Interval, MaxWait time.Duration
}

// The defaults of Options.
const (
	DefaultInterval = 500 * time.Millisecond
	DefaultMaxWait  = 5 * time.Second
)

// Run keeps the store up to date with the objects and templates until ctx is done, and then returns nil. It logs every
// error, reports it in Status and tries again. While the store cannot be reached, or another process leads, it keeps the
// newest draft, and publishes it afterwards.
func Run(ctx context.Context, o Options) error {
	l := newLoop(o)
	objects, templates := o.Source.Changes(ctx, o.Log)
	l.elected(ctx, time.Now())
	configuration := l.watchConfiguration(ctx)
	var countries countryWatch
	l.debounce.change(time.Now())
	for {
		timer := time.NewTimer(time.Until(l.wake()))
		select {
		case <-ctx.Done():
			timer.Stop()
			l.endPending("interrupted")
			return nil
		case <-objects:
			l.debounce.change(time.Now())
		case <-countries.follow(ctx, l.Source.Config.Countries.Files, o.Log):
			l.debounce.change(time.Now())
		case <-templates:
			l.templatesChanged(time.Now())
		case <-configuration:
			l.configurationChanged(time.Now())
		case <-l.Leader.Changed():
			l.elected(ctx, time.Now())
		case <-timer.C:
		}
		timer.Stop()
		l.turn(ctx)
	}
}

// loop is the state of [Run]. It belongs to one goroutine.
type loop struct {
	Options
	metrics   *metrics
	debounce  debounce
	recompile retry // when to compile again after an error
	pending   *compiler.Result
	from      inputs.Inputs      // what the last compile read
	timeline  *Timeline          // of pending, or of what was published last
	republish retry              // of pending
	previous  snapshots.Snapshot // the head of the store, as far as is known
	held      *ShrinkError       // why the pending draft waits for approval, or nil
	losses    shrinkGuard
	leads     bool
	rivals    rivals
	verify    time.Time // when to look at the head of the store; zero means never
	config    reconfiguration
	templates templating
	// former has the configuration and the templates to go back to if the new ones do not compile, nil if none are on trial.
	former *compiler.Source
	// longCompile is how long a compile may take before that is reported: the constant, except in tests.
	longCompile time.Duration
	// What was logged last: diagnostics, what a compile waits for, objects of kinds that are not compiled, and classes of
	// Ingresses that are not.
	reported []diag.Diagnostic
	waits    string
	ignored  string
	classes  string
}

// idle is how long the loop sleeps if there is nothing to wait for.
const idle = time.Hour

func newLoop(o Options) *loop {
	o.Source = o.Source.Remembering()
	if o.Leader == nil {
		o.Leader = alone{}
	}
	if e, ok := o.Leader.(election); ok {
		o.Status.elects(e)
	}
	if o.Tracers == nil {
		o.Tracers = noop.NewTracerProvider()
	}
	if o.Judge != nil {
		o.Source.Objects = compiler.Shared(o.Source.Objects)
	}
	o.Store = &attended{store: o.Store, log: o.Log, status: o.Status, within: silence}
	l := &loop{
		Options: o, metrics: newMetrics(o.Metrics, time.Now), rivals: rivals{own: newMark(o.Source.Objects, time.Now())},
		debounce: debounce{interval: cmp.Or(o.Interval, DefaultInterval), maxWait: cmp.Or(o.MaxWait, DefaultMaxWait)}, longCompile: longCompile,
	}
	l.rivals.term(false)
	l.templates.changed = true
	return l
}

// wake returns when there is something to do next.
func (l *loop) wake() time.Time {
	next := time.Now().Add(idle)
	times := []time.Time{l.config.reread.at, l.templates.reread.at, l.debounce.due(), l.recompile.at}
	if l.leads {
		times = append(times, l.republish.at, l.verify, l.rivals.until())
	}
	for _, at := range times {
		if !at.IsZero() && at.Before(next) {
			next = at
		}
	}
	return next
}

// turn does what is due.
func (l *loop) turn(ctx context.Context) {
	if due(l.config.reread.at, time.Now()) {
		l.reconfigure(ctx)
	}
	if now := time.Now(); due(l.templates.reread.at, now) {
		l.templates.reread.at = time.Time{}
		l.templatesChanged(now)
	}
	l.prepare(time.Now())
	if now := time.Now(); due(l.debounce.due(), now) || due(l.recompile.at, now) {
		first := l.debounce.begin()
		l.metrics.begins(first, now)
		if l.compile(ctx, first) {
			l.debounce.end(time.Now())
		}
	}
	if l.leads && due(l.rivals.until(), time.Now()) {
		// The counts of its snapshots stay: if it publishes again, it is reported at once.
		l.Log.Info("the other compiler has published nothing for long, it is taken for gone", "machine", l.rivals.current.Machine, "snapshot", l.rivals.current.Snapshot.String())
		l.rivals.current = nil
		l.metrics.rivals.Set(0)
		l.Status.rival(nil, time.Now())
	}
	if l.leads && l.pending != nil && due(l.republish.at, time.Now()) {
		l.publishWhileLeading(ctx)
	}
	if l.leads && due(l.verify, time.Now()) {
		l.verifyHead(ctx)
	}
}

func due(at, now time.Time) bool { return !at.IsZero() && !at.After(now) }

// compile compiles, and makes the draft the pending one. If that fails, the published snapshot stays. The time of the
// first change that it compiles is zero if there was none. It reports whether there was anything to compile: while
// objects are not known, there is not, and what comes next is not too soon after a compile.
func (l *loop) compile(ctx context.Context, change time.Time) (compiled bool) {
	l.takeTemplates(time.Now())
	began, timeline := time.Now(), BeginTimeline(ctx, l.Tracers, l.trigger())
	timeline.waited(change, began)
	l.Source.Stages = timeline.Stage
	ended := l.attend(began)
	result, objects, err := l.Source.Attempt(timeline.Within(ctx), l.Checker, began, l.trigger())
	ended()
	if result.Panicked {
		l.Source = l.Source.Remembering() // with empty memories
	}
	if ctx.Err() != nil {
		timeline.Dropped("interrupted")
		return false
	}
	if errors.Is(err, inputs.ErrIncomplete) {
		timeline.Dropped("incomplete")
		// A change of the objects ends the wait.
		l.recompile.reset()
		l.Status.waiting(err)
		if text := err.Error(); text != l.waits {
			l.waits = text
			l.Log.Info("waiting for objects before compiling", "for", err)
		}
		return false
	}
	l.waits = ""
	if result.Stale {
		l.debounce.change(time.Now())
	}
	if l.former != nil && errors.Is(err, compiler.ErrTemplates) {
		l.refuseTrial(ofNoObject(result.Diagnostics), time.Now())
		return true
	}
	if l.former != nil && err != nil && !errors.Is(err, compiler.ErrNothing) { // no objects is nobody's fault
		l.withdraw(err, time.Now())
		return true
	}
	l.Judge.Compiled(l.Source, objects.Classes, result.Diagnostics, err)
	l.logFindings(result)
	timeline.Compiled(result, err)
	l.metrics.compiled(time.Since(began), result, err)
	l.metrics.spent(timeline.spent())
	l.metrics.pieces(l.Source.Pieces())
	l.Status.compiled(result, err, time.Now())
	switch {
	case errors.Is(err, compiler.ErrTemplates), errors.Is(err, compiler.ErrGaveUp), errors.Is(err, compiler.ErrNothing):
		l.Log.Error("cannot compile, the published snapshot stays", append([]any{"err", err}, hintOf(err)...)...)
		l.recompile.reset()
	case err != nil:
		l.recompile.fail(time.Now())
		l.Log.Error("cannot compile now, trying again", append([]any{"err", err, "in", l.recompile.wait}, hintOf(err)...)...)
	default:
		l.acceptTrial(time.Now())
		l.recompile.reset()
		l.replacePending(&result, objects, timeline)
		l.republish.now(time.Now())
	}
	return true
}

// longCompile is how long a compile may take before that is reported. One of 100,000 Ingresses takes some ten seconds.
const longCompile = time.Minute

// attend reports a compile that takes long. The loop waits for it, and does nothing else.
func (l *loop) attend(began time.Time) (ended func()) {
	reported := make(chan struct{})
	late := time.AfterFunc(l.longCompile, func() {
		defer close(reported)
		err := fmt.Errorf("it has not ended since %s: HAProxy may hang while it checks", began.UTC().Format(time.RFC3339))
		l.Status.takesLong(err)
		l.Log.Warn("a compile takes long, and nothing is published until it ends", "err", err)
	})
	return func() {
		if !late.Stop() {
			<-reported
		}
		l.Status.takesLong(nil)
	}
}

// replacePending makes a result the pending one. It logs that a pending draft is never published, if the store failed
// to take it and the new draft differs.
func (l *loop) replacePending(result *compiler.Result, objects inputs.Inputs, timeline *Timeline) {
	newer := result.Draft.Digest()
	l.endPending("replaced")
	if l.pending != nil && l.republish.wait != 0 && l.pending.Draft.Digest() != newer {
		l.Log.Warn("snapshot never published, a newer one takes its place", "digest", l.pending.Draft.Digest().Short(), "newer", newer.Short())
		l.metrics.replacedDraft()
	}
	l.pending, l.timeline, l.from = result, timeline, objects
	if l.Announcer != nil {
		l.Announcer.Compiled(objects, result.Diagnostics)
	}
}

// endPending ends the timeline of the pending draft, if there is one, and says why.
func (l *loop) endPending(why string) {
	if l.pending != nil {
		l.timeline.Dropped(why)
	}
}

// trigger says what a compile is made for.
func (l *loop) trigger() string {
	if l.debounce.done.IsZero() {
		return "start"
	}
	return "change"
}

// logFindings logs what is new among the diagnostics, the ignored kinds and the classes that are not compiled.
func (l *loop) logFindings(r compiler.Result) {
	if l.ignored != r.Ignored && r.Ignored != "" {
		l.Log.Info("objects of kinds that are not compiled were passed over", "objects", r.Ignored)
	}
	l.ignored = r.Ignored
	if names := otherClasses(r.Ingresses); names != l.classes && names != "" && r.Ingresses.Compiled > 0 {
		l.Log.Info("some Ingresses are of other classes, and not looked at", "ingresses", r.Ingresses.String(), "hint", "--ingress-class and --controller-class say which are compiled")
	}
	l.classes = otherClasses(r.Ingresses)
	known := map[diag.Diagnostic]bool{}
	for _, d := range l.reported {
		known[d] = true
	}
	for _, d := range r.Diagnostics {
		if known[d] {
			continue
		}
		var said []any
		for _, a := range []slog.Attr{
			slog.String("object", d.Object.String()), slog.String("position", d.Position.String()), slog.String("reason", d.Message), slog.String("hint", d.Hint),
		} {
			if a.Value.String() != "" {
				said = append(said, a)
			}
		}
		switch {
		case d.Severity != diag.Error:
			l.Log.Warn("input has a fault", said...)
		case d.Object == diag.Object{}:
			l.Log.Error("input has an error", said...)
		default:
			l.Log.Error("object left out", said...)
		}
	}
	l.reported = r.Diagnostics
}

// otherClasses names the classes that are not compiled. It leaves out how many Ingresses they have, which only the status
// reports.
func otherClasses(c ingress.Census) string {
	var names []string
	for _, o := range c.Others {
		names = append(names, o.Class)
	}
	slices.Sort(names)
	return strings.Join(names, "\n")
}
