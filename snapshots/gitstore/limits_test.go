package gitstore

import (
	"bytes"
	"encoding/binary"
	"errors"
	"runtime"
	"strings"
	"testing"

	"github.com/hapsnap/hapsnap/snapshots"
	"github.com/hapsnap/hapsnap/snapshots/storetest"
)

// allocated returns how many bytes f allocates.
func allocated(f func()) uint64 {
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	f()
	runtime.ReadMemStats(&after)
	return after.TotalAlloc - before.TotalAlloc
}

// A file that is too large is found in the pack before it is unpacked, and its commit is not fetched again. The
// test is not parallel, as it measures the whole process.
func TestLargeFilesTakeLittleMemory(t *testing.T) {
	r := newRepository(t)
	s := r.open(t)
	publish(t, s, storetest.Draft("a"))
	last := publish(t, s, storetest.Draft("b"))
	good := r.git(t, "rev-parse", "edge")
	large := r.commitFile(t, "edge", "haproxy.cfg", strings.Repeat("\x00", 70<<20)) // a few kilobytes in a pack
	reader := r.open(t)
	m := meddle(reader)
	r.git(t, "update-ref", "refs/heads/edge", large)
	look := func(what string, want error, call func() error) {
		t.Helper()
		var err error
		took := allocated(func() { err = call() })
		if !errors.Is(err, want) {
			t.Errorf("%s: %v", what, err)
		}
		if took > 32<<20 {
			t.Errorf("%s: %d MiB were allocated", what, took>>20)
		}
	}
	view := func() error { _, err := reader.View(t.Context()); return err }
	look("a commit by hand", ErrForeign, view)
	look("once more", ErrForeign, view)
	if m.fetches != 1 {
		t.Errorf("it was fetched %d times", m.fetches)
	}
	// With the tag of a snapshot, it is a damaged snapshot.
	r.git(t, "update-ref", "refs/tags/edge/"+last.String(), large)
	look("a snapshot", nil, view)
	look("the snapshot", snapshots.ErrCorrupt, func() error { _, err := reader.Get(t.Context(), last); return err })
	look("its manifest", snapshots.ErrCorrupt, func() error { _, err := reader.Manifest(t.Context(), last); return err })
	look("the next", nil, func() error { _, _, err := r.open(t).Publish(t.Context(), storetest.Draft("c")); return err })

	r.git(t, "update-ref", "refs/heads/edge", good)
	r.git(t, "update-ref", "refs/heads/edge-channel", r.commitFile(t, "", channelFile, strings.Repeat("#", 70<<20)))
	look("a channel", snapshots.ErrCorrupt, func() error {
		_, err := r.open(t, func(o *Options) { o.Branch = "edge" }).View(t.Context())
		return err
	})
}

func TestSizesInPacks(t *testing.T) {
	delta := func(source, target uint64) *firstBytes {
		f := &firstBytes{most: 2 * binary.MaxVarintLen64}
		_, _ = f.Write(binary.AppendUvarint(binary.AppendUvarint(nil, source), target))
		_, _ = f.Write(bytes.Repeat([]byte{0x91}, 100))
		return f
	}
	for _, test := range []struct{ source, target uint64 }{{0, 0}, {1, 100}, {1 << 40, 1 << 20}, {1, snapshots.MaxFile}} {
		if got := delta(test.source, test.target).target(); got != int64(test.target) {
			t.Errorf("a delta to %d bytes is taken for one to %d", test.target, got)
		}
	}
	for _, size := range []uint64{snapshots.MaxFile + 1, 1 << 62, 1 << 63} {
		if got := delta(1, size).target(); got <= snapshots.MaxFile {
			t.Errorf("a delta to %d bytes is taken for one to %d", size, got)
		}
	}
	for name, pack := range map[string]string{
		"nothing": "", "no pack": "hello", "no object": "PACK\x00\x00\x00\x02\x00\x00\x00\x01",
	} {
		if f, err := spool(t.Context(), strings.NewReader(pack), t.TempDir()); err == nil {
			t.Errorf("%s: read", name)
			f.Close()
		}
	}
}
