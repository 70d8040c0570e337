package controller

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"reflect"
	"slices"
	"time"

	"github.com/hapsnap/hapsnap/compiler/config"
	"github.com/hapsnap/hapsnap/compiler/config/field"
	"github.com/hapsnap/hapsnap/compiler/diag"
	"github.com/hapsnap/hapsnap/internal/manifests"
)

// Configuration is the source of a running compiler's configuration: a [ConfigFile], or an object of a cluster.
type Configuration interface {
	// Read returns the current text of the configuration, and its name in diagnostics. After an error nothing is known
	// about it.
	Read(ctx context.Context) (name string, data []byte, err error)
	// Changes sends when the text may differ from the last Read, once for any number of
	// changes since the channel was last read. It ends with ctx.
	Changes(ctx context.Context, log *slog.Logger) <-chan struct{}
}

// ConfigFile is a configuration in a file. The file may be replaced by renaming, or may be in a volume of a ConfigMap,
// which replaces a symbolic link.
type ConfigFile string

// Read reads the file.
func (f ConfigFile) Read(context.Context) (name string, data []byte, err error) {
	if data, err = os.ReadFile(string(f)); err != nil {
		err = fmt.Errorf("read configuration: %w", err)
	}
	return string(f), data, err
}

// Changes watches the file.
func (f ConfigFile) Changes(ctx context.Context, log *slog.Logger) <-chan struct{} {
	return manifests.Watch(ctx, []string{string(f)}, log)
}

// settings checks values of a configuration that only HAProxy can check, such as names of ciphers.
type settings interface {
	Settings(ctx context.Context, c config.Config) ([]field.Error, error)
}

// JudgeConfiguration reads the text of a configuration, applies override, and returns the result with everything that is
// wrong with it. A configuration with findings must not be used. The error is that of a check that could not be made.
func JudgeConfiguration(ctx context.Context, check settings, name string, data []byte, override func(*config.Config)) (config.Config, []diag.Diagnostic, error) {
	c, found := config.Parse(name, data)
	if len(found) > 0 {
		return config.Config{}, found, nil
	}
	if override != nil {
		override(&c)
	}
	faults := c.Check()
	if len(faults) == 0 {
		var err error
		if faults, err = check.Settings(ctx, c); err != nil {
			return config.Config{}, nil, err
		}
	}
	return c, config.PlacesOf(name, data).Locate(faults), nil
}

// reconfiguration is what a loop knows of a configuration that changes.
type reconfiguration struct {
	reread  retry          // when to read it
	next    *config.Config // not used yet, since not all objects that it asks for are known
	waits   string         // what was logged of it
	refused []diag.Diagnostic
	unread  bool
	// withdrawn is the one with which no compile succeeded, for a reason that may pass.
	withdrawn *config.Config
}

// watchConfiguration returns the channel that sends when the configuration may have changed. It also makes the loop read the
// configuration at once, since it may have changed before.
func (l *loop) watchConfiguration(ctx context.Context) <-chan struct{} {
	if l.Configuration == nil {
		return nil
	}
	changes := l.Configuration.Changes(ctx, l.Log)
	l.config.reread.now(time.Now())
	return changes
}

// configurationChanged makes the loop read the configuration after a quiet moment: half of a file can look like a whole
// one.
func (l *loop) configurationChanged(now time.Time) {
	l.config.reread = retry{at: now.Add(l.debounce.interval)}
}

// reconfigure reads the configuration. If it is new and has no errors, the loop compiles with it. Otherwise nothing
// changes.
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
		return
	case err != nil:
		l.config.reread.fail(now)
		l.config.unread = true
		l.metrics.reconfigured("error", true)
		l.Status.configured(nil, err, now)
		l.Log.Error("cannot read the configuration, keeping the old one and trying again", "err", err, "in", l.config.reread.wait)
	case len(found) > 0:
		l.supersede(nil)
		l.refuse(found, now)
	case reflect.DeepEqual(c, l.Source.Config):
		l.supersede(nil)
		if configuration, _ := l.onTrial(); configuration { // the compile decides
			l.config.reread.reset()
			return
		}
		l.accept(now)
	case l.debounce.done.IsZero(): // no compile has ended, so that there is none to go on with
		l.try(c, now)
	default:
		l.config.reread.reset()
		l.supersede(&c)
	}
}

// supersede makes another configuration the next one, or none.
func (l *loop) supersede(next *config.Config) {
	if l.config.next != nil && next == nil {
		_ = l.Source.Prepare(nil) // nothing is asked for
	}
	l.config.next, l.config.waits = next, ""
	if next != nil && (l.config.withdrawn == nil || !reflect.DeepEqual(*next, *l.config.withdrawn)) {
		l.config.refused = nil
		l.Status.configured(nil, nil, time.Now()) // what was found was in a former text
	}
}

// prepare tries the next configuration once all objects are known that it asks for. Until then, the compiler goes on with
// the one before: if a kind is misspelled, or must not be read yet, that would keep everybody's changes from being published.
func (l *loop) prepare(now time.Time) {
	if l.config.next == nil {
		return
	}
	err := l.Source.Prepare(l.config.next)
	if err == nil {
		c := *l.config.next
		l.config.next, l.config.waits = nil, ""
		l.try(c, now)
		return
	}
	l.Status.configured(nil, err, now)
	if text := err.Error(); text != l.config.waits {
		if l.config.waits == "" {
			l.metrics.reconfigured("waiting", true)
		}
		l.config.waits = text
		l.Log.Info("the configuration waits for objects, keeping the old one meanwhile", "for", err)
	}
}

// try compiles with a configuration. It is on trial until that succeeds.
func (l *loop) try(c config.Config, now time.Time) {
	l.config.reread.reset()
	l.remember()
	l.Source.Config = c
	l.losses.reconfigured()
	l.debounce.change(now)
}

// goBack compiles with the last good configuration and templates again.
func (l *loop) goBack(now time.Time) {
	if _, templates := l.onTrial(); templates {
		l.templates.unused = true
		l.templates.reread = retry{at: now.Add(withdrawnRetry)} // what they name may come later
	}
	l.Source.Config, l.Source.Overlay = l.former.Config, l.former.Overlay
	l.former, l.templates.joined = nil, false
	l.debounce.change(now)
}

// refuse goes back to the last good configuration. It does not report known faults again.
func (l *loop) refuse(found []diag.Diagnostic, now time.Time) {
	l.config.reread.reset()
	if configuration, templates := l.onTrial(); configuration {
		l.goBack(now)
		if templates && len(l.templates.refused) == 0 { // they were not tried without it
			l.templates.changed = true
		}
	}
	l.config.unread, l.config.withdrawn = false, nil
	l.Status.configured(found, nil, now)
	if slices.Equal(found, l.config.refused) {
		return
	}
	l.config.refused = found
	l.metrics.reconfigured("refused", true)
	for _, d := range found {
		l.Log.Error("configuration refused, keeping the old one", "position", d.Position.String(), "reason", d.Message, "hint", d.Hint)
	}
}

// withdrawnRetry is when a configuration is tried again with which no compile succeeded. A search for what HAProxy crashes
// for takes long, and nothing is published meanwhile.
const withdrawnRetry = 5 * time.Minute

// withdraw goes back to the last good configuration and templates after a compile that failed for no fault that has a
// place: HAProxy crashed, hung or refused everything, or there was no memory. It cannot tell whether they are to blame.
func (l *loop) withdraw(err error, now time.Time) {
	configuration, templates := l.onTrial()
	withdrawn := l.Source.Config
	l.goBack(now)
	l.recompile.reset()
	if templates {
		l.reportTemplates(nil, fmt.Errorf("cannot compile with them: %w", err), now)
		l.Log.Error("cannot compile with the templates, keeping the old ones and trying again", append([]any{"err", err, "in", withdrawnRetry}, hintOf(err)...)...)
	}
	if templates && !configuration {
		return
	}
	l.config.withdrawn = &withdrawn
	l.config.reread = retry{at: now.Add(withdrawnRetry)}
	l.metrics.reconfigured("refused", true)
	l.Status.configured(nil, fmt.Errorf("cannot compile with it: %w", err), now)
	l.Log.Error("cannot compile with the configuration, keeping the old one and trying again", append([]any{"err", err, "in", withdrawnRetry}, hintOf(err)...)...)
}

// accept records that the current configuration is the one that is used.
func (l *loop) accept(now time.Time) {
	l.config.reread.reset()
	configuration, templates := l.onTrial()
	if configuration || l.config.unread || len(l.config.refused) > 0 || l.config.withdrawn != nil {
		l.metrics.reconfigured("accepted", false)
		l.Log.Info("configuration accepted")
	}
	l.config.refused, l.config.unread, l.config.withdrawn = nil, false, nil
	if !templates {
		l.former = nil
	}
	l.Status.configured(nil, nil, now)
}

// ofNoObject returns the errors that are the fault of the templates or of the
// configuration.
func ofNoObject(ds []diag.Diagnostic) []diag.Diagnostic {
	return slices.DeleteFunc(slices.Clone(ds), func(d diag.Diagnostic) bool {
		return d.Severity != diag.Error || d.Object != diag.Object{}
	})
}

// countryWatch follows the files of the list of countries that the configuration names.
type countryWatch struct {
	files   []string
	changed <-chan struct{}
	stop    context.CancelFunc
}

// follow returns the channel that sends when one of these files may have changed.
func (w *countryWatch) follow(ctx context.Context, files []string, log *slog.Logger) <-chan struct{} {
	if slices.Equal(files, w.files) {
		return w.changed
	}
	if w.stop != nil {
		w.stop()
	}
	w.files, w.changed, w.stop = slices.Clone(files), nil, nil
	if len(files) > 0 {
		ctx, w.stop = context.WithCancel(ctx)
		w.changed = manifests.Watch(ctx, files, log)
	}
	return w.changed
}
