package dataplanetest

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/fsnotify/fsnotify"

	"github.com/hapsnap/hapsnap/pusher/dataplane"
)

// watch notices when somebody else edits the configuration file: then its text is
// read into memory, its version goes up, and it is written back in normal form.
// Nothing is reloaded.
func (a *api) watch(ctx context.Context) (func(), error) {
	watcher, err := fsnotify.NewWatcher()
	if err != nil {
		return nil, fmt.Errorf("watch configuration: %w", err)
	}
	if err := watcher.Add(filepath.Dir(a.paths.config)); err != nil {
		watcher.Close()
		return nil, fmt.Errorf("watch configuration: %w", err)
	}
	return func() {
		defer watcher.Close()
		for {
			select {
			case <-ctx.Done():
				return
			case _, open := <-watcher.Errors:
				if !open {
					return
				}
			case event, open := <-watcher.Events:
				if !open {
					return
				}
				if event.Name == a.paths.config && event.Op&(fsnotify.Write|fsnotify.Create) != 0 {
					a.adoptEdit(ctx)
				}
			}
		}
	}, nil
}

// adoptEdit takes over a file whose hash is not its own. The API itself writes
// files whose hash is right, so its own writes are left alone; a file without a
// hash, such as a restored first one, counts as edited. Users that are in the file are
// read again, and without any the API dies.
func (a *api) adoptEdit(ctx context.Context) {
	a.commits.Lock()
	defer a.commits.Unlock()
	text, err := os.ReadFile(a.paths.config)
	if err != nil || ctx.Err() != nil || ownHash(string(text)) {
		return
	}
	doc, err := parseDocument(string(text))
	if err != nil {
		return
	}
	if a.told.UsersInConfig {
		users, err := doc.users(a.paths.config)
		if err != nil {
			a.died()
			return
		}
		a.users.Store(&users)
	}
	doc.insertDisclaimer()
	doc.incrementVersion()
	normal, err := doc.render()
	if err != nil || writeFile(a.paths.config, []byte(normal)) != nil {
		return
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	a.memory = doc
}

func ownHash(text string) bool {
	first, _, _ := strings.Cut(text, "\n")
	hash, found := strings.CutPrefix(first, "# _md5hash=")
	return found && hash == dataplane.Checksum([]byte(text))
}
