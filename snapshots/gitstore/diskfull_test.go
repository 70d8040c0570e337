package gitstore

import (
	"crypto/rand"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/hapsnap/hapsnap/snapshots"
	"github.com/hapsnap/hapsnap/snapshots/channel"
	"github.com/hapsnap/hapsnap/snapshots/storetest"
)

// smallDisk mounts a file system of one megabyte over a folder.
func smallDisk(t *testing.T, folder string) {
	t.Helper()
	if err := os.MkdirAll(folder, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := syscall.Mount("tmpfs", folder, "tmpfs", 0, "size=1m"); err != nil {
		t.Fatalf("mount a small file system: %v", err)
	}
	t.Cleanup(func() {
		if err := syscall.Unmount(folder, syscall.MNT_DETACH); err != nil {
			t.Error(err)
		}
	})
}

// large is a draft that does not fit, even if it is compressed.
func large(t *testing.T) snapshots.Draft {
	t.Helper()
	content := make([]byte, 3<<20)
	if _, err := rand.Read(content); err != nil {
		t.Fatal(err)
	}
	d := storetest.Draft("large")
	d.Files = append(d.Files, snapshots.File{Path: "files/large.bin", Content: content})
	return d
}

// If the disk of the repository is full, the snapshot is not published, the error says why, existing ones are intact,
// and a smaller one can be published afterwards.
func TestRepositoryOnAFullDisk(t *testing.T) {
	t.Parallel()
	for _, way := range ways {
		t.Run(way, func(t *testing.T) {
			t.Parallel()
			r := newRepository(t)
			full := filepath.Join(r.path, "objects")
			smallDisk(t, full)
			s := r.open(t, r.by(t, way))
			first, _, err := s.Publish(t.Context(), storetest.Draft("first"))
			if err != nil {
				t.Fatal(err)
			}
			if _, published, err := s.Publish(t.Context(), large(t)); err == nil || published || !strings.Contains(err.Error(), "No space left on device") {
				t.Errorf("publish: published %v, %v", published, err)
			}
			next, published, err := s.Publish(t.Context(), storetest.Draft("next"))
			if err != nil || !published || next.Revision != first.Revision+1 {
				t.Errorf("publish afterwards: %s, published %v, %v", next, published, err)
			}
			for _, id := range []snapshots.ID{first, next} {
				if _, err := r.open(t).Get(t.Context(), id); err != nil {
					t.Errorf("get %s: %v", id, err)
				}
			}
			if got := r.git(t, "fsck", "--strict", "--full", "--no-dangling"); strings.TrimSpace(got) != "" {
				t.Errorf("git fsck: %s", got)
			}
		})
	}
}

// If the disk of the cache is full, only what does not fit cannot be read. Nothing of it stays on the disk.
func TestCacheOnAFullDisk(t *testing.T) {
	t.Parallel()
	r := newRepository(t)
	writer := r.open(t)
	first, _, err := writer.Publish(t.Context(), storetest.Draft("first"))
	if err != nil {
		t.Fatal(err)
	}
	tooLarge, _, err := writer.Publish(t.Context(), large(t))
	if err != nil {
		t.Fatal(err)
	}
	cache := filepath.Join(t.TempDir(), "cache")
	smallDisk(t, cache)
	reader := r.open(t, func(o *Options) { o.CacheDir = cache })
	if _, err := reader.Get(t.Context(), tooLarge); err == nil {
		t.Error("what does not fit was read")
	}
	if _, err := reader.Get(t.Context(), first); err != nil {
		t.Errorf("get what fits: %v", err)
	}
	if err := reader.UpdateChannel(t.Context(), "pin", time.Now(), func(c *channel.Channel) error {
		*c = c.Pinned(channel.Pin{Snapshot: first})
		return nil
	}); err != nil {
		t.Errorf("pin: %v", err)
	}
}
