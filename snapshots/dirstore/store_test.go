package dirstore

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/hapsnap/hapsnap/snapshots"
	"github.com/hapsnap/hapsnap/snapshots/channel"
	"github.com/hapsnap/hapsnap/snapshots/storetest"
)

// A call that is cancelled while it writes leaves no trace.
func TestCancelledWhileWriting(t *testing.T) {
	t.Parallel()
	s := Open(t.TempDir(), Options{})
	ctx, cancel := context.WithCancel(t.Context())
	s.step = func(point string) error {
		if point == "before rename" {
			cancel()
		}
		return nil
	}
	if id, published, err := s.Publish(ctx, storetest.Draft("a")); !errors.Is(err, context.Canceled) || published {
		t.Errorf("publish: %s, published %v, %v", id, published, err)
	}
	if v, err := s.View(t.Context()); err != nil || len(v.IDs) != 0 {
		t.Errorf("view: %v, %v", v.IDs, err)
	}
}

// A writer waits for the lock only until its context ends.
func TestWaitingForTheLock(t *testing.T) {
	t.Parallel()
	path := t.TempDir()
	holder, waiter := Open(path, Options{}), Open(path, Options{})
	_, unlock, err := holder.lock(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	if _, published, err := waiter.Publish(ctx, storetest.Draft("a")); !errors.Is(err, context.DeadlineExceeded) || published {
		t.Errorf("publish: published %v, %v", published, err)
	}
	unlock()
	if _, published, err := waiter.Publish(t.Context(), storetest.Draft("a")); err != nil || !published {
		t.Errorf("publish: published %v, %v", published, err)
	}
}

// A publish reads the folder of snapshots once.
func TestPublishReadsTheFolderOnce(t *testing.T) {
	t.Parallel()
	path := t.TempDir()
	s := Open(path, Options{})
	var read []string
	s.entries = func(folder string) ([]fs.DirEntry, error) {
		read = append(read, folder)
		return entriesOf(folder)
	}
	for n := range 20 {
		read = nil
		if id, published, err := s.Publish(t.Context(), storetest.Draft(fmt.Sprint("web", n))); err != nil || !published || id.Revision != uint64(n+1) {
			t.Fatalf("%s, %t, %v", id, published, err)
		}
		if want := []string{path, filepath.Join(path, snapshotsDir)}; !slices.Equal(read, want) {
			t.Fatalf("publish %d reads %q, want %q", n+1, read, want)
		}
	}
}

// The newest is found among names of any length, and of what is no snapshot.
func TestNewestOfAnyLength(t *testing.T) {
	t.Parallel()
	path := t.TempDir()
	s := Open(path, Options{})
	for _, name := range []string{
		"r000009-ffffffffff", "r999999-0123456789", "r1000000-0123456789", "r000010-0123456789", "r1000000-0123456788", "r1000001-012345678X",
		"z999999-0123456789", "zzzzzzzzzzzzzzzzzzz", "r9999999-0123456789.old",
	} {
		if err := os.MkdirAll(filepath.Join(path, snapshotsDir, name), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.WriteFile(filepath.Join(path, snapshotsDir, "r1000002-0123456789"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	newest, unlock, err := s.lock(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	unlock()
	if ids, err := s.IDs(t.Context()); err != nil || newest.String() != "r1000000-0123456789" || ids[len(ids)-1] != newest {
		t.Errorf("the newest is %s, and listed as %v, %v", newest, ids, err)
	}
}

// No number is given twice if somebody removes the newest snapshot, nor if the store was written by a version that noted
// none. A note that leaves no room, or is none, is ignored.
func TestNoNumberIsGivenTwice(t *testing.T) {
	t.Parallel()
	path := t.TempDir()
	for n, test := range []struct {
		content, note string
		remove        bool // the newest snapshot
		want          uint64
	}{
		{"a", "", false, 1}, {"b", "", false, 2}, {"c", "", true, 3}, {"d", "", true, 4}, {"b", "", true, 5},
		{"c", "r18446744073709551614-0123456789", false, 6}, {"d", "r000007-x", false, 7}, {"e", "none", true, 7}, {"f", "r000002-0123456789", false, 8},
	} {
		s := Open(path, Options{})
		ids, err := s.IDs(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if test.remove {
			if err := os.RemoveAll(filepath.Join(path, snapshotsDir, ids[len(ids)-1].String())); err != nil {
				t.Fatal(err)
			}
		}
		if file := filepath.Join(path, newestFile); test.note == "none" {
			err = os.Remove(file)
		} else if test.note != "" {
			err = os.WriteFile(file, []byte(test.note), 0o600)
		}
		if err != nil {
			t.Fatal(err)
		}
		if id, published, err := s.Publish(t.Context(), storetest.Draft(test.content)); err != nil || !published || id.Revision != test.want {
			t.Errorf("publish %d: %s, %t, %v", n+1, id, published, err)
		}
	}
}

// The first writer creates the directory. Other files in it do no harm.
func TestDirectory(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "not", "yet")
	s := Open(path, Options{})
	if _, err := s.View(t.Context()); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("view of nothing: %v", err)
	}
	if err := s.UpdateChannel(t.Context(), "pin", time.Time{}, func(*channel.Channel) error { return nil }); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("channel of nothing: %v", err)
	}
	d := storetest.Draft("a")
	id, _, err := s.Publish(t.Context(), d)
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"snapshot.yaml", "haproxy.cfg", "maps/host.map"} {
		info, err := os.Stat(filepath.Join(path, "snapshots", id.String(), name))
		if err != nil || !info.ModTime().Equal(d.Time) {
			t.Errorf("%s: %v, %v", name, info, err)
		}
	}
	// Files of people are ignored, and do no harm.
	for _, name := range []string{"snapshots/README", "snapshots/r000009-zzz/haproxy.cfg", "snapshots/r000009-0123456789.orig/haproxy.cfg"} {
		name := filepath.Join(path, name)
		if err := errors.Join(os.MkdirAll(filepath.Dir(name), 0o755), os.WriteFile(name, []byte("x"), 0o644)); err != nil {
			t.Fatal(err)
		}
	}
	if v, err := s.View(t.Context()); err != nil || len(v.IDs) != 1 {
		t.Errorf("view: %v, %v", v.IDs, err)
	}
	// A link would lead out of the snapshot.
	config := filepath.Join(path, "snapshots", id.String(), "haproxy.cfg")
	if err := errors.Join(os.Rename(config, path+".cfg"), os.Symlink(path+".cfg", config)); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Get(t.Context(), id); !errors.Is(err, snapshots.ErrCorrupt) {
		t.Errorf("get a link: %v", err)
	}
}

func appendTo(t *testing.T, path string) {
	t.Helper()
	f, err := os.OpenFile(path, os.O_APPEND|os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if _, err := f.WriteString("tampered\n"); err != nil {
		t.Fatal(err)
	}
}

// A store that stays open notices a missing or additional file. A changed time alone has no effect.
func TestDamagedHeadOfARunningStore(t *testing.T) {
	t.Parallel()
	path := t.TempDir()
	s := Open(path, Options{})
	d := storetest.Draft("a")
	publish := func(want uint64) string {
		t.Helper()
		id, published, err := s.Publish(t.Context(), d)
		if err != nil || id.Revision != want {
			t.Errorf("publish: %s, published %v, %v", id, published, err)
		}
		if _, err := Open(path, Options{}).Get(t.Context(), id); err != nil {
			t.Error(err)
		}
		return filepath.Join(path, "snapshots", id.String())
	}
	folder := publish(1)
	now := time.Now()
	if err := os.Chtimes(filepath.Join(folder, "maps/host.map"), now, now); err != nil {
		t.Fatal(err)
	}
	folder = publish(1)
	if err := os.Remove(filepath.Join(folder, "maps/host.map")); err != nil {
		t.Fatal(err)
	}
	folder = publish(2)
	if err := os.WriteFile(filepath.Join(folder, "maps/other.map"), nil, 0o644); err != nil {
		t.Fatal(err)
	}
	publish(3)
	publish(3)
}

// The folders that the first snapshot makes are brought to the disk, in those above them.
func TestNewFoldersAreBroughtToTheDisk(t *testing.T) {
	t.Parallel()
	above := t.TempDir()
	s := Open(filepath.Join(above, "a", "edge"), Options{})
	var synced []string
	s.step = func(point string) error {
		if folder, ok := strings.CutPrefix(point, "sync "); ok {
			synced = append(synced, folder)
		}
		return nil
	}
	for _, name := range []string{"a", "b"} {
		if _, _, err := s.Publish(t.Context(), storetest.Draft(name)); err != nil {
			t.Fatal(err)
		}
	}
	want := []string{filepath.Join(above, "a", "edge"), filepath.Join(above, "a"), above}
	if !slices.Equal(synced, want) {
		t.Errorf("brought to the disk are %v, want %v", synced, want)
	}
}

// A snapshot for which the disk has no room leaves the room to others, such as the state of a pusher.
func TestFullDisk(t *testing.T) {
	t.Parallel()
	disk := t.TempDir()
	if err := syscall.Mount("tmpfs", disk, "tmpfs", 0, "size=1m"); err != nil {
		t.Fatalf("mount a small file system: %v", err)
	}
	t.Cleanup(func() {
		if err := syscall.Unmount(disk, syscall.MNT_DETACH); err != nil {
			t.Error(err)
		}
	})
	s := Open(filepath.Join(disk, "edge"), Options{})
	large := storetest.Draft("a")
	large.Files = append(large.Files, snapshots.File{Path: "files/large.bin", Content: make([]byte, 2<<20)})
	if _, _, err := s.Publish(t.Context(), large); !errors.Is(err, syscall.ENOSPC) {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(disk, "state.json"), make([]byte, 512<<10), 0o600); err != nil {
		t.Errorf("there is no room for others: %v", err)
	}
	if _, published, err := s.Publish(t.Context(), storetest.Draft("b")); err != nil || !published {
		t.Errorf("what fits: published %v, %v", published, err)
	}
}
