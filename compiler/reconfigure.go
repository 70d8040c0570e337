package compiler

import (
	"context"
	"reflect"
	"slices"
	"time"

	"github.com/hapsnap/hapsnap/compiler/config"
	"github.com/hapsnap/hapsnap/compiler/diag"
)

// reconfiguration is what a loop knows of a configuration that changes.
type reconfiguration struct {
	reread  retry          // when to read it
	former  *config.Config // to go back to, while the new one has not compiled yet
	refused []diag.Diagnostic
	unread  bool
}

// configuration tells when the configuration may be another, and has it read at once,
// for it may be another already.
func (l *loop) configuration(ctx context.Context) <-chan struct{} {
	if l.Configuration == nil {
		return nil
	}
	changes := l.Configuration.Changes(ctx, l.Log)
	l.config.reread.now(time.Now())
	return changes
}

// configurationChanged has the configuration read once it has been quiet for a while:
// half of a file can look like a whole one.
func (l *loop) configurationChanged(now time.Time) {
	l.config.reread = retry{at: now.Add(l.debounce.interval)}
}

// reconfigure reads the configuration. A good one that is new is compiled with; any
// other changes nothing.
func (l *loop) reconfigure(ctx context.Context) {
	now := time.Now()
	name, data, err := l.Configuration.Read(ctx)
	var c config.Config
	var found []diag.Diagnostic
	if err == nil {
		c, found, err = JudgeConfiguration(ctx, l.Checker, name, data, l.Override)
	}
	switch {
	case ctx.Err() != nil:
	case err != nil:
		l.unreadable(err, now)
	case len(found) > 0:
		l.refuse(found, now)
	case reflect.DeepEqual(c, l.Source.Config):
		l.accept(now)
	default:
		l.config.reread.reset()
		if l.config.former == nil {
			former := l.Source.Config
			l.config.former = &former
		}
		l.Source.Config = c
		l.debounce.change(now)
	}
}

// unreadable keeps the configuration there is, and tries again.
func (l *loop) unreadable(err error, now time.Time) {
	l.config.reread.fail(now)
	l.config.unread = true
	l.metrics.reconfigured("error", true)
	l.Status.configured(nil, err, now)
	l.Log.Error("configuration not read, the old one stays, trying again", "err", err, "in", l.config.reread.wait)
}

// refuse goes back to the configuration that was good. Faults that are known are not
// reported again.
func (l *loop) refuse(found []diag.Diagnostic, now time.Time) {
	l.config.reread.reset()
	if l.config.former != nil {
		l.Source.Config, l.config.former = *l.config.former, nil
		l.debounce.change(now)
	}
	l.config.unread = false
	l.Status.configured(found, nil, now)
	if slices.Equal(found, l.config.refused) {
		return
	}
	l.config.refused = found
	l.metrics.reconfigured("refused", true)
	for _, d := range found {
		l.Log.Error("configuration refused, the old one stays", "position", d.Position.String(), "reason", d.Message, "hint", d.Hint)
	}
}

// accept takes note that what is written is what is used.
func (l *loop) accept(now time.Time) {
	l.config.reread.reset()
	if l.config.former != nil || l.config.unread || len(l.config.refused) > 0 {
		l.metrics.reconfigured("accepted", false)
		l.Log.Info("configuration accepted")
	}
	l.config.former, l.config.refused, l.config.unread = nil, nil, false
	l.Status.configured(nil, nil, now)
}

// ofNoObject returns the errors that are the fault of the templates or of the
// configuration.
func ofNoObject(ds []diag.Diagnostic) []diag.Diagnostic {
	return slices.DeleteFunc(slices.Clone(ds), func(d diag.Diagnostic) bool {
		return d.Severity != diag.Error || d.Object != diag.Object{}
	})
}
