package manifests

import (
	"context"
	"log/slog"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/fsnotify/fsnotify"
)

// pollInterval is how often the directories are checked even if the kernel reported nothing. It reports nothing
// for network file systems, for directories that did not exist when the watch began, or after its queue
// overflowed.
const pollInterval = 5 * time.Second

// Watch reports that files in one of the directories, or below it, may have changed; a single file may stand
// for a directory. It sends once for any number of changes since the last receive, and never misses a change
// that is made after Watch returned. A receiver must read the directories after each signal, and once at the
// start. The watch ends with ctx; the channel is never closed.
func Watch(ctx context.Context, dirs []string, log *slog.Logger) <-chan struct{} {
	return watch(ctx, dirs, log, pollInterval)
}

func watch(ctx context.Context, dirs []string, log *slog.Logger, poll time.Duration) <-chan struct{} {
	w := &watcher{dirs: dirs, log: log, changed: make(chan struct{}, 1)}
	notify, err := fsnotify.NewWatcher()
	if err != nil {
		log.Warn("cannot get notifications of changes, looking for changes instead", "interval", poll, "err", err)
	}
	w.notify = notify
	w.look()
	go w.run(ctx, poll)
	return w.changed
}

// watcher watches the directories of one Watch, in one goroutine.
type watcher struct {
	dirs    []string
	log     *slog.Logger
	notify  *fsnotify.Watcher // nil if the kernel has none left
	seen    []listing         // of each directory, when it was last looked at
	missing []string          // why a directory could not be looked at, or ""
	changed chan struct{}
}

// run ends with ctx.
func (w *watcher) run(ctx context.Context, poll time.Duration) {
	ticker := time.NewTicker(poll)
	defer ticker.Stop()
	var events chan fsnotify.Event
	var errs chan error
	if w.notify != nil {
		defer w.notify.Close()
		events, errs = w.notify.Events, w.notify.Errors
	}
	for {
		select {
		case <-ctx.Done():
			return
		case event := <-events:
			if slices.ContainsFunc(append(pending(events), event), w.isRelevant) {
				// Looking comes first: a later change differs from this look at the next one, even without a
				// notification.
				w.look()
				w.signal()
			}
		case err := <-errs:
			w.log.Warn("notifications of changes were lost, reading everything again", "err", err)
			w.look()
			w.signal()
		case <-ticker.C:
			if w.look() {
				w.signal()
			}
		}
	}
}

// pending takes the waiting events.
func pending(events <-chan fsnotify.Event) []fsnotify.Event {
	var out []fsnotify.Event
	for {
		select {
		case event := <-events:
			out = append(out, event)
		default:
			return out
		}
	}
}

// isWatched reports whether a file counts for [Watch]: all files except hidden ones and the backups of editors,
// so that templates can be watched too.
func isWatched(name string) bool { return !isHidden(name) && !strings.HasSuffix(name, "~") }

// isRelevant reports whether an event can change what is read. It can if it names one of the watched
// directories or files, something in one, or the hidden link that a ConfigMap volume replaces.
func (w *watcher) isRelevant(event fsnotify.Event) bool {
	path := filepath.Clean(event.Name)
	name, dir := filepath.Base(path), filepath.Dir(path)
	switch {
	case event.Op == fsnotify.Chmod:
		return false
	case name == "..data", slices.ContainsFunc(w.dirs, func(root string) bool { return filepath.Clean(root) == path }):
		return true
	}
	return isWatched(name) && slices.ContainsFunc(w.seen, func(l listing) bool { return slices.Contains(l.dirs, dir) })
}

// look lists the directories, asks for notifications of all their parts, and reports whether anything differs
// from the last look.
func (w *watcher) look() bool {
	seen, missing := make([]listing, len(w.dirs)), make([]string, len(w.dirs))
	for i, dir := range w.dirs {
		l, err := list(dir, isWatched)
		if err != nil {
			missing[i] = err.Error()
		}
		seen[i] = l
		w.follow(dir, l)
	}
	same := slices.Equal(missing, w.missing) && slices.EqualFunc(seen, w.seen, listing.unchanged)
	w.seen, w.missing = seen, missing
	return !same
}

// follow asks for notifications of the directories of a listing, and of the one
// that holds the root, since the root may be replaced as a whole: a file by an
// editor, a symbolic link by git-sync.
func (w *watcher) follow(root string, l listing) {
	if w.notify == nil {
		return
	}
	for _, dir := range append([]string{filepath.Dir(filepath.Clean(root))}, l.dirs...) {
		// Adding a directory again does no harm, and is needed if the directory was replaced.
		if err := w.notify.Add(dir); err != nil {
			w.log.Debug("directory is not watched", "dir", dir, "err", err)
		}
	}
}

// signal sends without waiting: one signal that was not received yet stands for all.
func (w *watcher) signal() {
	select {
	case w.changed <- struct{}{}:
	default:
	}
}
