package dirstore

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/hapsnap/hapsnap/snapshots/channel"
	"github.com/hapsnap/hapsnap/snapshots/storetest"
)

// A writer that is killed at any moment leaves the act in the journal if it was done, and not otherwise,
// and the next writer loses nothing of it.
func TestJournalOfKilledWriters(t *testing.T) {
	t.Parallel()
	at := time.Date(2026, 11, 21, 3, 0, 0, 0, time.UTC)
	killed := errors.New("killed")
	for kill := 1; ; kill++ {
		path := t.TempDir()
		s := Open(path, Options{})
		if _, _, err := s.Publish(t.Context(), storetest.Draft("a")); err != nil {
			t.Fatal(err)
		}
		step := 0
		s.step = func(string) error {
			if step++; step == kill {
				return killed
			}
			return nil
		}
		act := func(s *Store, by string) error {
			return s.UpdateChannel(t.Context(), "pause", at, func(c *channel.Channel) error {
				*c = c.Paused(channel.Pause{By: by, At: at})
				c.Act = channel.Act{Verb: channel.VerbPause, By: by}
				return nil
			})
		}
		err := act(s, "ann")
		if err == nil {
			if kill < 4 {
				t.Fatalf("there are only %d steps", kill)
			}
			return
		}
		next := Open(path, Options{})
		view, err := next.View(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		done := 0
		if view.Channel.Spec.Pause != nil {
			done = 1
		}
		for range 2 {
			if got, err := next.Journal(t.Context()); err != nil || len(got) != done {
				t.Errorf("killed at step %d: %d acts were done, and the journal has %v, %v", kill, done, got, err)
			}
			if done == 2 {
				break
			}
			if err := act(next, "bob"); err != nil {
				t.Fatal(err)
			}
			if done++; done == 1 {
				break
			}
		}
	}
}

// A journal that cannot be read keeps nobody from saying what should run, and is not waited for.
func TestJournalThatCannotBeRead(t *testing.T) {
	t.Parallel()
	for name, damage := range map[string]func(path string) error{
		"a folder": func(path string) error { return os.Mkdir(path, 0o700) },
		"a pipe":   func(path string) error { return syscall.Mkfifo(path, 0o600) },
		"a loop":   func(path string) error { return os.Symlink(path, path) },
	} {
		path := t.TempDir()
		s := Open(path, Options{})
		id, _, err := s.Publish(t.Context(), storetest.Draft("a"))
		if err != nil {
			t.Fatal(err)
		}
		if err := damage(filepath.Join(path, journalFile)); err != nil {
			t.Fatal(err)
		}
		err = s.UpdateChannel(t.Context(), "pin", time.Unix(1e9, 0), func(c *channel.Channel) error {
			*c = c.Pinned(channel.Pin{Snapshot: id, By: "ann"})
			return nil
		})
		if err == nil || !strings.Contains(err.Error(), "the channel is changed (pin), and its journal does not say so") {
			t.Errorf("%s: %v", name, err)
		}
		if view, err := s.View(t.Context()); err != nil || view.Channel.Spec.Pin == nil {
			t.Errorf("%s: it is not pinned: %+v, %v", name, view.Channel, err)
		}
	}
}
