package dirstore

import (
	"context"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/fsnotify/fsnotify"
)

// lookForFolders is how often a folder is looked for that is not there yet, or was made again.
const lookForFolders = time.Second

// Follow calls changed when something in the store may have changed, until ctx is done. Network file systems
// tell of no changes: the caller reads the store now and then anyway. Two folders are watched, and not all below them
// as for manifests, since a snapshot comes by one rename.
func (s *Store) Follow(ctx context.Context, changed func()) {
	notify, err := fsnotify.NewWatcher()
	if err != nil {
		s.log.Warn("changes are not told, the store is polled", "store", s.String(), "err", err)
		return
	}
	defer notify.Close()
	folders := []string{s.path, s.in(snapshotsDir)}
	ticker := time.NewTicker(lookForFolders)
	defer ticker.Stop()
	for {
		for _, folder := range folders {
			if !slices.Contains(notify.WatchList(), folder) && notify.Add(folder) == nil {
				changed() // what came before is seen now
			}
		}
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		case event := <-notify.Events:
			if s.shows(event.Name) {
				changed()
			}
		case err := <-notify.Errors:
			s.log.Warn("notifications of changes were lost, the store is read again", "store", s.String(), "err", err)
			changed()
		}
	}
}

// shows reports whether readers see a file: the channel, a snapshot, or the folder of snapshots.
func (s *Store) shows(path string) bool {
	folder, name := filepath.Split(path)
	switch filepath.Clean(folder) {
	case s.path:
		return name == channelFile || name == snapshotsDir
	case s.in(snapshotsDir):
		return !strings.HasPrefix(name, ".")
	}
	return false
}
