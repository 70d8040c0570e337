package controller

import (
	"fmt"
	"reflect"
	"time"

	"github.com/hapsnap/hapsnap/compiler/diag"
	"github.com/hapsnap/hapsnap/compiler/render"
)

// templating is what a loop knows of templates that change.
type templating struct {
	changed bool  // those in the directory may not be the ones that were read last
	reread  retry // when to read them again
	unused  bool  // those in the directory are not the ones that are used
	joined  bool  // they were tried again together with a new configuration
	worked  bool  // some have, so that there is something to go back to
	refused []diag.Diagnostic
}

// templatesChanged makes the next compile read the templates.
func (l *loop) templatesChanged(now time.Time) {
	l.templates.changed = true
	l.debounce.change(now)
	l.rereadRefused(now)
}

// rereadRefused reads a configuration again that was refused: the templates may have been the reason.
func (l *loop) rereadRefused(now time.Time) {
	if l.Configuration != nil && (len(l.config.refused) > 0 || l.config.withdrawn != nil) {
		l.configurationChanged(now)
	}
}

// takeTemplates reads the templates if they may have changed. New ones are on trial until a compile with them succeeds, as
// a new configuration is: an error in them would keep everybody's changes from being published. Without any that have
// worked there is nothing to go back to.
func (l *loop) takeTemplates(now time.Time) {
	if l.Source.Templates == "" || !l.templates.changed {
		return
	}
	read, err := l.Source.ReadTemplates()
	if used := l.Source.Overlay; err == nil && l.templates.worked && len(*read) == 0 && used != nil && len(*used) > 0 {
		err = fmt.Errorf("%s has no template any more: a volume may not be mounted; restart the compiler to use the shipped ones alone", l.Source.Templates)
	}
	switch {
	case err != nil && !l.templates.worked: // the compile reads them too, and fails
	case err != nil:
		l.templates.reread.fail(now)
		l.templates.changed, l.templates.unused = false, true
		l.reportTemplates(nil, err, now)
		l.Log.Error("cannot read the templates, keeping the old ones and trying again", "err", err, "in", l.templates.reread.wait)
	case same(read, l.Source.Overlay):
		l.templates.changed = false
		if l.templates.unused {
			l.acceptTemplates(now)
		}
	default:
		if l.templates.worked {
			l.remember()
		} else if former := l.former; former != nil {
			former.Overlay = read
		}
		l.Source.Overlay = read
		l.templates.changed, l.templates.unused = false, false
		l.templates.reread.reset()
	}
}

// same reports whether two sets of templates are the same.
func same(a, b *render.Templates) bool { return a != nil && b != nil && a.Digest() == b.Digest() }

// remember remembers the configuration and the templates that are used. The next ones are on trial.
func (l *loop) remember() {
	if l.former == nil {
		former := l.Source
		l.former = &former
	}
}

// onTrial reports what is on trial.
func (l *loop) onTrial() (configuration, templates bool) {
	former := l.former
	if former == nil {
		return false, false
	}
	return !reflect.DeepEqual(former.Config, l.Source.Config), former.Overlay != l.Source.Overlay
}

// refuseTrial ends a trial whose compile found what is wrong. A configuration and templates may be meant for each other: if
// either fails alone, both are tried together.
func (l *loop) refuseTrial(found []diag.Diagnostic, now time.Time) {
	configuration, templates := l.onTrial()
	switch {
	case configuration && !templates && l.templates.unused && !l.templates.joined:
		l.templates.joined, l.templates.changed = true, true
		l.debounce.change(now)
	case templates && !configuration:
		l.goBack(now)
		l.refuseTemplates(found, now)
	default:
		l.refuse(found, now)
	}
}

// refuseTemplates reports why templates are not used.
func (l *loop) refuseTemplates(found []diag.Diagnostic, now time.Time) {
	l.templates.refused = found
	l.reportTemplates(found, nil, now)
	for _, d := range found {
		l.Log.Error("templates refused, keeping the old ones", "position", d.Position.String(), "reason", d.Message, "hint", d.Hint)
	}
}

// acceptTrial ends a trial whose compile succeeded.
func (l *loop) acceptTrial(now time.Time) {
	configuration, templates := l.onTrial()
	l.templates.worked, l.templates.joined = true, false
	if configuration {
		l.accept(now)
	}
	l.former = nil
	if templates && !l.templates.unused {
		l.acceptTemplates(now)
	}
	if configuration && l.templates.unused { // they may need it
		l.templates.changed = true
		l.debounce.change(now)
	}
}

// acceptTemplates records that the templates in the directory are used.
func (l *loop) acceptTemplates(now time.Time) {
	if l.templates.unused || len(l.templates.refused) > 0 {
		l.Log.Info("templates accepted")
	}
	l.templates.unused, l.templates.refused = false, nil
	l.templates.reread.reset()
	l.reportTemplates(nil, nil, now)
	l.rereadRefused(now)
}

// reportTemplates reports why the templates in the directory are not used, or that they are.
func (l *loop) reportTemplates(found []diag.Diagnostic, err error, now time.Time) {
	l.metrics.templatesRefused.Set(0)
	if l.templates.unused {
		l.metrics.templatesRefused.Set(1)
	}
	l.Status.templated(found, err, now)
}
