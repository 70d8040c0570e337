package dirstore

import (
	"errors"
	"os"
	"path/filepath"
	"runtime"
	"syscall"
	"testing"

	"github.com/hapsnap/hapsnap/snapshots"
	"github.com/hapsnap/hapsnap/snapshots/storetest"
)

// Files that are too large are not read, and special files are not opened, since that could take for ever. The
// test is not parallel, as it measures the whole process.
func TestLargeFilesTakeLittleMemory(t *testing.T) {
	large := func(path string) error { return os.Truncate(path, 300<<20) }
	for name, test := range map[string]struct {
		file   string
		damage func(path string) error
	}{
		"a large file":      {snapshots.ConfigFile, large},
		"a large manifest":  {snapshots.ManifestFile, large},
		"a file beside":     {"maps/more.map", func(path string) error { _, err := os.Create(path); return errors.Join(err, large(path)) }},
		"a pipe":            {snapshots.ManifestFile, func(path string) error { return errors.Join(os.Remove(path), syscall.Mkfifo(path, 0o600)) }},
		"a folder":          {snapshots.ManifestFile, func(path string) error { return errors.Join(os.Remove(path), os.Mkdir(path, 0o700)) }},
		"a pipe for a file": {snapshots.ConfigFile, func(path string) error { return errors.Join(os.Remove(path), syscall.Mkfifo(path, 0o600)) }},
	} {
		t.Run(name, func(t *testing.T) {
			path := t.TempDir()
			id, _, err := Open(path, Options{}).Publish(t.Context(), storetest.Draft("a"))
			if err != nil {
				t.Fatal(err)
			}
			if err := test.damage(filepath.Join(path, snapshotsDir, id.String(), test.file)); err != nil {
				t.Fatal(err)
			}
			var before, after runtime.MemStats
			runtime.ReadMemStats(&before)
			s := Open(path, Options{})
			if _, err := s.Get(t.Context(), id); !errors.Is(err, snapshots.ErrCorrupt) {
				t.Errorf("get: %v", err)
			}
			if next, published, err := s.Publish(t.Context(), storetest.Draft("b")); err != nil || !published || next.Revision != 2 {
				t.Errorf("publish: %s, %v", next, err)
			}
			runtime.ReadMemStats(&after)
			if took := after.TotalAlloc - before.TotalAlloc; took > 8<<20 {
				t.Errorf("%d MiB were allocated", took>>20)
			}
		})
	}
	path := t.TempDir()
	channel := filepath.Join(path, channelFile)
	if err := errors.Join(os.WriteFile(channel, nil, 0o600), large(channel)); err != nil {
		t.Fatal(err)
	}
	if _, err := Open(path, Options{}).View(t.Context()); err == nil {
		t.Error("a large channel was read")
	}
}
