package compiler

import (
	"context"
	"log/slog"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.opentelemetry.io/otel/trace"

	"github.com/hapsnap/hapsnap/compiler/config"
	"github.com/hapsnap/hapsnap/compiler/validate"
)

// Options are those of [Run]. All fields are needed, except the tracers, the leader,
// the announcer, the judge, the times, and what changes the configuration.
type Options struct {
	Source  Source
	Store   store
	Checker *validate.Checker
	Log     *slog.Logger
	Metrics prometheus.Registerer
	Tracers trace.TracerProvider // nil: none
	Status  *Status
	// Leader says when to publish; nil is always.
	Leader leader
	// Configuration takes the place of the Source's when it changes, if that is good;
	// nil never does. Override is put over it.
	Configuration Configuration
	Override      func(*config.Config)
	// Announcer tells the objects what became of them; nil tells nobody.
	Announcer announcer
	// Judge is told what was compiled, or nil.
	Judge *Judge
	// Interval is how long there must be no change before one that follows
	// soon upon another is compiled; MaxWait bounds the waiting. Zero is the
	// default.
	Interval, MaxWait time.Duration
}

// The defaults of Options.
const (
	DefaultInterval = 500 * time.Millisecond
	DefaultMaxWait  = 5 * time.Second
)

// The times between tries while the store, or the files, cannot be reached.
const (
	firstRetry = time.Second
	lastRetry  = 30 * time.Second
)

// Run keeps the store up to date with the objects and templates until ctx is done, and then
// returns nil. Whatever goes wrong is logged, said by Status and tried again:
// while the store is gone, the newest draft is kept and published once it is
// back. So it is while another process leads, and published once this one does.
func Run(ctx context.Context, o Options) error {
	l := newLoop(o)
	objects, templates := o.Source.changes(ctx, o.Log)
	l.elected(ctx, time.Now())
	configuration := l.configuration(ctx)
	l.debounce.change(time.Now())
	for {
		timer := time.NewTimer(time.Until(l.wake()))
		select {
		case <-ctx.Done():
			timer.Stop()
			l.drop("interrupted")
			return nil
		case <-objects:
			l.debounce.change(time.Now())
		case <-templates:
			l.debounce.change(time.Now())
			if len(l.config.refused) > 0 { // it may have been the templates
				l.configurationChanged(time.Now())
			}
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
